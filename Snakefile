# The benchmark as a workflow: config -> data -> partition -> base -> run -> analysis -> report.
# Rules call the `fedbench` command line and nothing else; `fedbench cells` lists the runs as targets.
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"


rule all:
    default_target: True
    input:
        f"{RESULTS}/report.html",


include: "workflow/rules/data.smk"
include: "workflow/rules/partition.smk"
include: "workflow/rules/base.smk"
include: "workflow/rules/run.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/unknown.smk"
