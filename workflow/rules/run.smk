# The checkpoint lies outside the outputs, which Snakemake deletes when a job fails: a retry continues from it.
# The data set is no input: the summary's hash of it is compared with what lies there (`renewed_run`), as a new input would
# run everything again that was made without. --overwrite: if another run lies there, Snakemake has already decided that
# this one takes its place.
rule run:
    input:
        renewed_run,
        partition=f"{RESULTS}/partitions/{{dataset}}/{{partition}}/seed{{seed}}/partition.npz",
        base=f"{RESULTS}/bases/{{dataset}}/{{model}}/base.safetensors",
    output:
        rounds=f"{RESULTS}/runs/{{dataset}}/{{partition}}/{{model}}/{{method}}/seed{{seed}}/rounds.csv",
        clients=f"{RESULTS}/runs/{{dataset}}/{{partition}}/{{model}}/{{method}}/seed{{seed}}/clients.csv",
        summary=f"{RESULTS}/runs/{{dataset}}/{{partition}}/{{model}}/{{method}}/seed{{seed}}/summary.json",
    log:
        f"{RESULTS}/logs/run/{{dataset}}/{{partition}}/{{model}}/{{method}}/seed{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/run/{{dataset}}/{{partition}}/{{model}}/{{method}}/seed{{seed}}.tsv"
    wildcard_constraints:
        dataset=NAME,
        partition=NAME,
        model=NAME,
        method=NAME,
        seed=SEED,
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        gpu=1,
        mem_mb=8000,
        runtime=240,
    params:
        spec=run_spec,
    shell:
        "fedbench train --dataset {wildcards.dataset} --partition {wildcards.partition}"
        " --model {wildcards.model} --method {wildcards.method} --seed {wildcards.seed}"
        " --threads {threads} --overwrite 2>&1 | logged {log}"
