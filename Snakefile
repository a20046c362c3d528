# The benchmark as a workflow: config -> data -> partition -> base -> run -> analysis -> report.
# Rules call the `fedbench` command line and nothing else; `fedbench cells` lists the runs as targets.
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"


# Everything by name, not the report alone: Snakemake does not miss a deleted file if what was made from it is there.
rule all:
    input:
        FIXED_FILES,
        map(plan.target, plan.cells),
    localrule: True


# The end of a long output should say what failed and why, not only how much.
onerror:
    if found := failures():
        print(found, file=sys.stderr)


include: "workflow/rules/data.smk"
include: "workflow/rules/partition.smk"
include: "workflow/rules/base.smk"
include: "workflow/rules/run.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/report.smk"


if not is_module:  # any other name may be a target of the workflow that uses this one

    include: "workflow/rules/unknown.smk"
