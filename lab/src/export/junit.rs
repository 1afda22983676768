//! The form that JUnit made common, as GitLab, Jenkins and GitHub show it.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestSuite};

use super::parts::{Unwritable, result_of};
use crate::gate::{Group, Judged, Outcome, Verdict};
use crate::report::Report;

/// One suite a set-up, one case a run; a boot that failed is a failure.
pub(super) fn report(report: &Report) -> Result<String, Unwritable> {
    let mut document = Document::new("firstlight report");
    for setup in &report.setups {
        let mut suite = TestSuite::new(&*setup.name);
        for (file, total_ns) in setup.each_run() {
            let mut case = TestCase::new(file, TestCaseStatus::success());
            case.set_classname(&*setup.name);
            case.set_time(Duration::from_nanos(total_ns.unwrap_or(0)));
            suite.add_test_case(case);
        }
        document.add_test_suite(suite);
    }
    let mut suite = TestSuite::new("boots that failed");
    for boot in &report.failed {
        let status = status(NonSuccessKind::Failure, &boot.message);
        let mut case = TestCase::new(&*boot.file, status);
        case.set_classname(&*boot.cell);
        suite.add_test_case(case);
    }
    for file in &report.left_out {
        suite.add_test_case(TestCase::new(
            &*file.file,
            status(NonSuccessKind::Error, &file.why),
        ));
    }
    if !suite.test_cases.is_empty() {
        document.add_test_suite(suite);
    }
    text(&document)
}

/// One suite a set-up, one case a figure: what is slower is a failure, what is unclear an error,
/// so that neither is green.
pub(super) fn verdict(verdict: &Verdict) -> Result<String, Unwritable> {
    let mut document = Document::new("firstlight gate");
    for group in &verdict.groups {
        document.add_test_suite(suite(group));
    }
    let mut suite = TestSuite::new("verdict");
    let status = match verdict.verdict {
        Outcome::Pass => TestCaseStatus::success(),
        Outcome::Regressed => status(NonSuccessKind::Failure, &verdict.moved.join("\n")),
        Outcome::Unclear => status(NonSuccessKind::Error, &verdict.unclear.join("\n")),
    };
    suite.add_test_case(TestCase::new("verdict", status));
    document.add_test_suite(suite);
    text(&document)
}

fn suite(group: &Group) -> TestSuite {
    let mut suite = TestSuite::new(&*group.name);
    for row in &group.rows {
        let mut case = TestCase::new(row.title(), of_row(group, row));
        case.set_classname(&*group.name);
        case.set_time(Duration::from_secs_f64((row.b_ns / 1e9).max(0.0)));
        suite.add_test_case(case);
    }
    if !group.unclear.is_empty() {
        let why = group.unclear.join("\n");
        let mut case = TestCase::new("runs", status(NonSuccessKind::Error, &why));
        case.set_classname(&*group.name);
        suite.add_test_case(case);
    }
    suite
}

fn of_row(group: &Group, row: &Judged) -> TestCaseStatus {
    match result_of(group, row) {
        "FAIL" => status(NonSuccessKind::Failure, &row.words()),
        "SKIP" => {
            let mut skipped = TestCaseStatus::skipped();
            skipped.set_message(format!("{}: {}", row.state.words(), row.words()));
            skipped
        }
        _ => TestCaseStatus::success(),
    }
}

fn status(kind: NonSuccessKind, why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(why);
    status
}

fn text(document: &Document) -> Result<String, Unwritable> {
    let text = document.to_string();
    text.map_err(|error| Unwritable(error.to_string()))
}
