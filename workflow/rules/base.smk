rule base:
    input:
        renewed_base,
        data=f"{RESULTS}/data/{{dataset}}/dataset.json",
    output:
        weights=f"{RESULTS}/bases/{{dataset}}/{{model}}/base.safetensors",
        facts=f"{RESULTS}/bases/{{dataset}}/{{model}}/base.json",
    log:
        f"{RESULTS}/logs/base/{{dataset}}/{{model}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/base/{{dataset}}/{{model}}.tsv"
    wildcard_constraints:
        dataset=NAME,
        model=NAME,
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        gpu=1,
        mem_mb=8000,
        runtime=240,
    params:
        spec=base_spec,
    shell:
        "fedbench pretrain --dataset {wildcards.dataset} --model {wildcards.model}"
        " --threads {threads} 2>&1 | logged {log}"
