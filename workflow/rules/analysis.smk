TABLES = [
    f"{RESULTS}/tables/{name}.{kind}"
    for name in plan.experiments
    for kind in ("csv", "md", "tex")
]
FIGURES = [
    f"{RESULTS}/figures/{name}/{figure}.png"
    for name, experiment in plan.experiments.items()
    for figure in experiment.figures
]


def summaries(wildcards):
    """Summaries of an experiment's runs, or of all runs where no experiment is named."""
    experiment = wildcards.get("experiment")
    return [
        plan.target(cell)
        for cell in (plan.experiment_cells(experiment) if experiment else plan.cells)
    ]


rule aggregate:
    input:
        summaries,
    output:
        summary=f"{RESULTS}/summary.csv",
        tables=TABLES,
    log:
        f"{RESULTS}/logs/aggregate.log",
    benchmark:
        f"{RESULTS}/benchmarks/aggregate.tsv"
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        shown=[plan.experiment_digest(name) for name in plan.experiments],
    shell:
        "{FEDBENCH} aggregate {CONFIG} {LOGGED} {log}"


rule figure:
    input:
        summaries,
    output:
        png=report(
            f"{RESULTS}/figures/{{experiment}}/{{figure}}.png",
            caption="../report/figure.rst",
            category="Figures",
            subcategory="{experiment}",
            labels={"experiment": "{experiment}", "figure": "{figure}"},
        ),
        pdf=f"{RESULTS}/figures/{{experiment}}/{{figure}}.pdf",
    log:
        f"{RESULTS}/logs/figure/{{experiment}}/{{figure}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figure/{{experiment}}/{{figure}}.tsv"
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        shown=lambda wildcards: told(plan.experiment_digest, wildcards.experiment),
    shell:
        "{FEDBENCH} plot {CONFIG} --experiment {wildcards.experiment} --figure {wildcards.figure} {LOGGED} {log}"
