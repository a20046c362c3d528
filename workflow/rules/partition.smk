rule partition:
    input:
        renewed_partition,
        data=f"{RESULTS}/data/{{dataset}}/dataset.json",
    output:
        indices=f"{RESULTS}/partitions/{{dataset}}/{{partition}}/seed{{seed}}/partition.npz",
        facts=f"{RESULTS}/partitions/{{dataset}}/{{partition}}/seed{{seed}}/partition.json",
        picture=report(
            f"{RESULTS}/partitions/{{dataset}}/{{partition}}/seed{{seed}}/partition.png",
            caption="../report/partition.rst",
            category="Partitions",
            subcategory="{dataset}",
            labels={"partition": "{partition}", "seed": "{seed}"},
        ),
    log:
        f"{RESULTS}/logs/partition/{{dataset}}/{{partition}}/seed{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/partition/{{dataset}}/{{partition}}/seed{{seed}}.tsv"
    wildcard_constraints:
        dataset=NAME,
        partition=NAME,
        seed=SEED,
    localrule: True
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        login=1,
        mem_mb=2000,
        runtime=15,
    params:
        spec=partition_spec,
    shell:
        "fedbench partition --dataset {wildcards.dataset} --partition {wildcards.partition}"
        " --seed {wildcards.seed} --threads {threads} 2>&1 | logged {log}"
