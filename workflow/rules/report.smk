rule report:
    input:
        summary=f"{RESULTS}/summary.csv",
        tables=TABLES,
        figures=[figure for figure in FIGURES if figure.endswith(".png")],
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
    localrule: True
    conda:
        "../../envs/fedbench.yaml"
    threads: 1
    resources:
        login=1,
        mem_mb=4000,
        runtime=30,
    shell:
        "fedbench report 2>&1 | logged {log}"
