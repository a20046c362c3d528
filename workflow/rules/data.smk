rule prepare:
    input:
        renewed_data,
    output:
        manifest=f"{RESULTS}/data/{{dataset}}/dataset.json",
        images=f"{RESULTS}/data/{{dataset}}/images.npy",
        arrays=f"{RESULTS}/data/{{dataset}}/arrays.npz",
    log:
        f"{RESULTS}/logs/prepare/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/prepare/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=NAME,
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        spec=data_spec,
    shell:
        "fedbench prepare --dataset {wildcards.dataset} --threads {threads} 2>&1 | logged {log}"
