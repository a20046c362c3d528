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
    localrule: True
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        login=1,
        mem_mb=4000,
        runtime=30,
    params:
        shown=[plan.table_digest(name) for name in plan.experiments],
    shell:
        "fedbench aggregate 2>&1 | logged {log}"


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
    wildcard_constraints:
        experiment=NAME,
        figure=NAME,
    localrule: True
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        login=1,
        mem_mb=4000,
        runtime=30,
    params:
        shown=figure_spec,
    shell:
        "fedbench plot --experiment {wildcards.experiment} --figure {wildcards.figure} 2>&1 | logged {log}"
