# Takes every name that no other rule makes, so that a misspelt target ends with the nearest right one.
MADE = "|".join(
    [
        r"data/[^/]+/(dataset\.json|images\.npy|arrays\.npz)",
        r"partitions/[^/]+/[^/]+/seed\d+/partition\.(npz|json|png)",
        r"bases/[^/]+/[^/]+/base\.(safetensors|json)",
        r"runs/[^/]+/[^/]+/[^/]+/[^/]+/seed\d+/(rounds\.csv|clients\.csv|summary\.json)",
        r"figures/[^/]+/[^/]+\.(png|pdf)",
        r"logs/.*",
        r"benchmarks/.*",
    ]
)


rule unknown:
    output:
        "{anything}",
    log:
        "logs/unknown/{anything}.log",
    wildcard_constraints:
        anything=rf"(?!({re.escape(RESULTS)}/({MADE})|{'|'.join(map(re.escape, FIXED_FILES))})$).+",
    conda:
        "../../envs/fedbench.yaml"
    params:
        message=no_such_target,
    shell:
        "exit 1 > {log}"
