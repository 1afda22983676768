//! What is measured: [`PLANS`].

use crate::record::Record;
use crate::{allocator, balloon, guests, zeros};

/// A part of the document.
pub(crate) struct Plan {
    /// Its name, in the document and of its record.
    pub(crate) name: &'static str,
    /// The commands, run from the root of the repository.
    pub(crate) commands: &'static [&'static str],
    /// Makes its tables of what the commands printed.
    pub(crate) render: fn(&Record) -> Result<String, String>,
}

/// The part that needs root, for huge pages, 8 GiB of them.
pub(crate) const NEEDS_ROOT: &str = "pool";

/// All parts, the quick ones first.
pub(crate) const PLANS: &[Plan] = &[
    Plan {
        name: "counts",
        commands: &["cat bench/counts.txt", "cat lab/tests/it/boot_counts.txt"],
        render: guests::counts,
    },
    Plan {
        name: "linux",
        commands: &[
            "firstlight compare '--memory 16G --clock instructions --append descriptors=lazy' \
             '--memory 16G --clock instructions --kernel target/linux/6.1/vmlinuz' --json",
            "firstlight compare '--memory 16G --clock instructions --append descriptors=early' \
             '--memory 16G --clock instructions --kernel target/linux/6.12/vmlinuz' --json",
            "firstlight compare '--memory 16G --clock instructions' \
             '--memory 16G --clock instructions --append descriptors=eager' --json",
        ],
        render: guests::instructions,
    },
    Plan {
        name: "guest-sweep",
        commands: &[
            "firstlight boot --memory 16G --nodes 2 --cpus 4 --clock instructions --append sweep | sed -n '/^Descriptors of/,$p'",
        ],
        render: as_printed,
    },
    Plan {
        name: "guest-sweep-wall",
        commands: &[
            "firstlight boot --memory 16G --cpus 4 --append 'sweep runs=5' | sed -n '/^Descriptors of/,$p'",
        ],
        render: as_printed,
    },
    Plan {
        name: "linux-wall",
        commands: &[
            "firstlight compare '--memory 16G --cpus 1 --append descriptors=lazy' \
             '--memory 16G --cpus 1 --kernel target/linux/6.1/vmlinuz' --runs 3 --json",
            "firstlight compare '--memory 16G --cpus 1 --append descriptors=lazy' \
             '--memory 16G --cpus 1 --kernel target/linux/6.12/vmlinuz' --runs 3 --json",
            "firstlight compare '--memory 16G --cpus 2 --append descriptors=lazy' \
             '--memory 16G --cpus 2 --kernel target/linux/6.1/vmlinuz' --runs 3 --json",
            "firstlight compare '--memory 16G --cpus 2 --append descriptors=lazy' \
             '--memory 16G --cpus 2 --kernel target/linux/6.12/vmlinuz' --runs 3 --json",
            "firstlight compare '--memory 16G --cpus 4 --append descriptors=lazy' \
             '--memory 16G --cpus 4 --kernel target/linux/6.1/vmlinuz' --runs 3 --json",
            "firstlight compare '--memory 16G --cpus 4 --append descriptors=lazy' \
             '--memory 16G --cpus 4 --kernel target/linux/6.12/vmlinuz' --runs 3 --json",
        ],
        render: guests::wall,
    },
    Plan {
        name: "balloon",
        commands: &[
            "firstlight boot --machine microvm --memory 10G --balloon --json --append 'balloon_bytes=8G'",
            "firstlight boot --machine microvm --memory 10G --balloon --json \
             --append 'balloon_bytes=8G reporting=on reporting.budget_one_in=0'",
            "firstlight boot --machine microvm --memory 10G --balloon --json \
             --append 'balloon_bytes=8G reporting=on'",
            "firstlight boot --machine microvm --memory 10G --balloon --json --clock instructions \
             --append 'balloon_bytes=8G reporting=on reporting.budget_one_in=0 reporting.delay_ms=1'",
            "firstlight boot --machine microvm --memory 10G --balloon --json --clock instructions \
             --append 'balloon_bytes=8G reporting=on reporting.delay_ms=1'",
        ],
        render: balloon::render,
    },
    Plan {
        name: NEEDS_ROOT,
        commands: &["firstlight bench pool --runs 9"],
        render: as_printed,
    },
    Plan {
        name: "descriptors",
        commands: &[
            "firstlight bench descriptors --shape memory=16G --runs 41 --descriptor-bytes 8 --json",
            "firstlight bench descriptors --shape memory=16G --runs 41 --descriptor-bytes 64 --json",
        ],
        render: guests::descriptors,
    },
    Plan {
        name: "locked-words",
        commands: &["cargo run --release --quiet -p firstlight-bench --example locked_words"],
        render: as_printed,
    },
    Plan {
        name: "zero",
        commands: &["firstlight bench zero --json"],
        render: zeros::zero,
    },
    Plan {
        name: "bring-up",
        commands: &["cargo bench --quiet -p firstlight-bench --bench bring_up"],
        render: as_printed,
    },
    Plan {
        name: "blocks",
        commands: &["cargo bench --quiet -p firstlight-bench --bench bring_up -- blocks"],
        render: as_printed,
    },
    Plan {
        name: "hash-tables",
        commands: &["cargo bench --quiet -p firstlight-bench --bench bring_up -- hash"],
        render: as_printed,
    },
    Plan {
        name: "allocator",
        commands: &["firstlight bench alloc --json"],
        render: allocator::render,
    },
    Plan {
        name: "fragmentation",
        commands: &["firstlight bench alloc --workload fragmentation --json"],
        render: allocator::fragmentation,
    },
];

/// What a command printed; columns that are no table of the document's as they are.
fn as_printed(record: &Record) -> Result<String, String> {
    let mut text = String::new();
    for lines in record.texts()? {
        let is_table = lines.iter().any(|line| line.starts_with("|---"));
        let lines = lines.join("\n");
        match is_table {
            true => text.push_str(&lines),
            false => text.push_str(&format!("```text\n{}\n```", lines.trim_end())),
        }
        text.push('\n');
    }
    Ok(text)
}
