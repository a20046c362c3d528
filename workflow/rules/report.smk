# Files that one rule makes once; everything else follows from the names of the runs.
SINGLE_FILES = [
    f"{RESULTS}/summary.csv",
    f"{RESULTS}/report.html",
    *TABLES,
    *FIGURES,
    *(figure.replace(".png", ".pdf") for figure in FIGURES),
]


rule report:
    input:
        summary=f"{RESULTS}/summary.csv",
        tables=TABLES,
        figures=FIGURES,
    output:
        report(
            f"{RESULTS}/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"report": "all experiments"},
        ),
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    shell:
        "{FEDBENCH} report {CONFIG} {LOGGED} {log}"
