//! `firstlight bisect`: since which commit or kernel image a boot is slower; the search is the
//! [lab's](firstlight_lab::bisect).

use crate::boot::{self, Boots};
use crate::failure::Failure;
use crate::output::{GOOD, HEADING, Output};
use crate::report::Page;
use crate::text::milliseconds;
use clap::Args;
use firstlight_lab::bisect::{Answer, Candidates, Git, List, Mark, NoAnswer, search};
use firstlight_lab::boot::{BootError, Clock, Request};
use firstlight_lab::file;
use firstlight_lab::run::Run;
use std::path::{Path, PathBuf};

/// Find the commit or kernel image since which a boot is slower
///
/// Drives `git bisect` in a tree, or takes kernel images in order. Both ends are verified
/// first. What cannot be built or booted is passed over; a build is made by the command
/// after --, in the tree. The tree is left as it was found.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A commit that is fast
    #[arg(
        long,
        value_name = "COMMIT",
        requires = "bad",
        required_unless_present = "images"
    )]
    good: Option<String>,
    /// A later commit that is slow
    #[arg(long, value_name = "COMMIT", requires = "good")]
    bad: Option<String>,
    /// The tree; else this folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    tree: PathBuf,
    /// What the build makes and is booted, in the tree
    #[arg(long, value_name = "FILE", default_value = "arch/x86/boot/bzImage")]
    built: PathBuf,
    /// Kernel images in order instead of a tree: the first is fast, the last slow
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = ["good", "bad", "build"])]
    images: Vec<PathBuf>,
    /// What is booted is an image of Firstlight, no Linux
    #[arg(long)]
    own_image: bool,
    /// A file in the tree whose content goes to the guest's command line
    #[arg(long, value_name = "FILE", conflicts_with = "images")]
    append_file: Option<PathBuf>,
    /// Options of boot in quotes
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "--clock instructions",
        allow_hyphen_values = true
    )]
    boot: String,
    /// The figure that decides, such as total or "phase:memmap early"; else the span that lost most
    #[arg(long, value_name = "FIGURE")]
    figure: Option<String>,
    /// Boots of each; else 10, and 1 on the instruction clock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// The command that builds
    #[arg(last = true, value_name = "BUILD-COMMAND")]
    build: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight bisect --good v5.7 --bad v5.8 --boot \"--memory 64G --clock instructions\" -- make -j8 bzImage
  firstlight bisect --images linux-6.1/vmlinuz linux-6.6/vmlinuz linux-6.12/vmlinuz
  firstlight bisect --good HEAD~20 --bad HEAD --own-image \\
      --built target/x86_64-unknown-none/release/firstlight-image -- make image

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let words = shlex::split(&options.boot).ok_or_else(|| {
        Failure::Usage(format!("--boot {:?}: a quote does not end", options.boot))
    })?;
    let given = boot::Options::of_words(words)
        .map_err(|error| Failure::Usage(format!("--boot {:?}: {error}", options.boot)))?;
    let bench = Bench {
        options,
        request: given.request()?,
        boots: Boots::new(given.prints_log())?,
    };
    let answer = if options.images.is_empty() {
        let (good, bad) = (options.good.as_deref(), options.bad.as_deref());
        let (good, bad) = (good.unwrap_or_default(), bad.unwrap_or_default());
        let mut git =
            Git::new(&options.tree, good, bad, options.build.clone()).map_err(Failure::Usage)?;
        let (good, bad) = git.ends();
        bench.search(&mut git, &good, &bad)?
    } else {
        let names = options
            .images
            .iter()
            .map(|image| image.display().to_string());
        let names: Vec<String> = names.collect();
        let (good, bad) = (names.first().cloned(), names.last().cloned());
        let mut list = List::new(names)
            .ok_or_else(|| Failure::Usage("--images has one file; expected two or more".into()))?;
        bench.search(
            &mut list,
            &good.unwrap_or_default(),
            &bad.unwrap_or_default(),
        )?
    };
    output.print(&answer, report)
}

struct Bench<'o> {
    options: &'o Options,
    request: Request,
    boots: Boots,
}

impl Bench<'_> {
    fn search(
        &self,
        candidates: &mut dyn Candidates,
        good: &str,
        bad: &str,
    ) -> Result<Answer, Failure> {
        // Ctrl-C is no kernel that does not boot.
        let mut stopped = None;
        let mut measure = |name: &str| {
            self.measure(name).map_err(|error| {
                let text = error.to_string();
                if let Failure::Boot(BootError::Interrupted(_)) = error {
                    stopped.get_or_insert(error);
                }
                text
            })
        };
        let answer = search(
            candidates,
            (good, bad),
            self.options.figure.as_deref(),
            &mut measure,
        );
        match stopped {
            Some(failure) => Err(failure),
            None => answer.map_err(|error| match error {
                NoAnswer::NoFigure(..) => Failure::Usage(error.to_string()),
                NoAnswer::NotSlower | NoAnswer::End(..) => Failure::Machine(error.to_string()),
                NoAnswer::Candidates(_) => Failure::Io(error.to_string()),
            }),
        }
    }

    fn measure(&self, name: &str) -> Result<Vec<Run>, Failure> {
        let options = self.options;
        let kernel = if options.images.is_empty() {
            options.tree.join(&options.built)
        } else {
            Path::new(name).to_owned()
        };
        let mut request = self.request.clone();
        if options.own_image {
            request.image = Some(kernel);
        } else {
            request.kernel = Some(kernel);
        }
        if let Some(file) = &options.append_file {
            let words = file::read(&options.tree.join(file))?;
            let words = String::from_utf8_lossy(&words);
            request.append = format!("{} {}", request.append, words.trim())
                .trim()
                .to_owned();
        }
        let counted = request.machine.clock == Clock::Instructions;
        let runs = options.runs.unwrap_or(if counted { 1 } else { 10 });
        let mut told = Vec::new();
        for _ in 0..runs {
            let record = self.boots.run(&request)?;
            told.push(Run::of_record(&record).map_err(|error| Failure::Check(error.to_string()))?);
        }
        Ok(told)
    }
}

fn report(answer: &Answer) -> String {
    let mut page = Page::default();
    page.styled(HEADING, "firstlight bisect");
    match &answer.first_bad {
        Some(name) => page.line(format!("  {GOOD}first slow: {name}{GOOD:#}")),
        None => page.line(format!(
            "  first slow: one of {}",
            answer.candidates.join(", ")
        )),
    }
    if let Some(about) = &answer.about {
        page.line(format!("  {about}"));
    }
    for moved in answer.moved.iter().take(5) {
        page.line(format!("  {moved}"));
    }
    page.section("Steps", "milliseconds of the figure that decided");
    let rows = answer.steps.iter().map(|step| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a figure to print, not negative"
        )]
        let ms = step
            .ns
            .map_or(String::new(), |ns| milliseconds(ns.round() as u64));
        let mark = match step.mark {
            Mark::Good => "good",
            Mark::Bad => "bad",
            Mark::Skip => "passed over",
        };
        vec![
            step.name.clone(),
            mark.to_owned(),
            ms,
            step.why.clone().unwrap_or_default(),
        ]
    });
    page.table("<<><", &rows.collect::<Vec<_>>());
    page.text
}
