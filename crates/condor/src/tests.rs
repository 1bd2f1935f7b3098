//! Options, formats and tables without a pool.

use classad::ClassAd;
use jiff::tz::TimeZone;

use crate::mask::Mask;
use crate::options::is;
use crate::print::{self, Form};
use crate::selection::Named;
use crate::tables::{Totals, View, batches};

fn job(cluster: i64, proc: i64, status: i64) -> ClassAd {
    let text = format!(
        "[ClusterId = {cluster}; ProcId = {proc}; JobStatus = {status}; Owner = \"alma\"; Cmd = \"/bin/sleep\"; Args = \"9\"; QDate = 1794775271; \
         Size = 2.5; Text = \"a b\"]"
    );
    ClassAd::parse_new(&text).unwrap()
}

fn formatted(format: &str, attribute: &str) -> String {
    let mut mask = Mask::default();
    mask.add_format(format, attribute);
    mask.render(&[job(7, 0, 2)], 0)
}

fn auto(letters: &str, words: &[&str]) -> String {
    let mut mask = Mask::default();
    mask.add_auto(letters, words).unwrap();
    mask.render(&[job(7, 0, 2), job(7, 11, 5)], 0)
}

#[test]
fn options_may_be_shortened_and_have_one_dash_or_two() {
    assert!(
        is("-const", "constraint", 1) && is("--constraint", "constraint", 1) && is("-c", "constraint", 1)
    );
    assert!(
        !is("-l", "limit", 3)
            && is("-lim", "limit", 3)
            && !is("-limits", "limit", 3)
            && !is("const", "constraint", 1)
    );
    assert!(is("-af:jh", "af", 2));
}

#[test]
fn words_name_clusters_jobs_or_users() {
    assert_eq!(Named::read("46"), Named::Cluster(46));
    assert_eq!(Named::read("46.2"), Named::Job(46, 2));
    assert_eq!(Named::read("abc.def"), Named::User("abc.def".to_owned()));
    assert_eq!(Named::read("99999999999"), Named::User("99999999999".to_owned()), "no number of ours");
}

#[test]
fn formats_are_those_of_printf() {
    for (format, attribute, wanted) in [
        ("%d", "ClusterId", "7"),
        ("%5d|", "ClusterId", "    7|"),
        ("%-5d|", "ClusterId", "7    |"),
        ("%05d", "ClusterId", "00007"),
        ("%d", "Size", "2"),
        ("%.2f", "Size", "2.50"),
        ("%s\\n", "Text", "a b\n"),
        ("%.1s", "Text", "a"),
        ("%v", "Text", "a b"),
        ("%V", "Text", "\"a b\""),
        ("100%% %s", "OWNER", "100% alma"),
        ("%x", "13 * 2", "1a"),
        ("gone %s\\n", "Nothing", ""),
        ("%v+++", "Nothing", "undefined+++"),
        ("%-3V;", "Nothing", "undefined;"),
        ("%%v%d", "Nothing", ""),
        ("%", "ClusterId", ""),
        ("%999999999d", "Nothing", ""),
    ] {
        assert_eq!(formatted(format, attribute), wanted, "{format} {attribute}");
    }
}

#[test]
fn letters_of_af_say_how_values_stand() {
    assert_eq!(auto("", &["ClusterId", "Text", "No"]), "7 a b undefined\n7 a b undefined\n");
    assert_eq!(auto("j", &["JobStatus"]), "7.0 2\n7.11 5\n");
    assert_eq!(auto("V", &["Text"]), "\"a b\"\n\"a b\"\n");
    assert_eq!(auto("t", &["ProcId", "ProcId + 1"]), "0\t1\n11\t12\n");
    assert_eq!(auto(",", &["ProcId", "Owner"]), "0, alma\n11, alma\n");
    assert_eq!(auto("l", &["ProcId"]), "ProcId = 0\nProcId = 11\n");
    assert_eq!(auto("n", &["ProcId", "JobStatus"]), "0\n2\n11\n5\n");
    assert_eq!(auto("jh", &["Owner"]), " ID  Owner\n7.0  alma \n7.11 alma \n");
    assert!(Mask::default().add_auto("q", &["A"]).is_err() && Mask::default().add_auto("", &["(1"]).is_err());
}

#[test]
fn jobs_of_a_cluster_are_one_line_and_columns_without_jobs_are_left_out() {
    let zone = TimeZone::UTC;
    let ads = [job(7, 0, 2), job(7, 11, 1)];
    let done = [(7, 4)].into_iter().collect();
    let wanted = "OWNER BATCH_NAME    SUBMITTED   DONE   RUN    IDLE  TOTAL JOB_IDS\n\
                  alma  ID: 7       11/15 20:41      4      1      1      6 7.0-11\n";
    assert_eq!(batches(&ads, &done, &zone), wanted);
    assert!(batches(&[], &done, &zone).contains("HOLD"));
    assert_eq!(
        View::Jobs.line(&ads[1], 0, &zone),
        "   7.11  alma           11/15 20:41   0+00:00:00 I  0    0.0 sleep 9\n"
    );
    let totals = Totals::of(&ads);
    assert_eq!((totals.running, totals.idle, totals.held), (1, 1, 0));
}

#[test]
fn whole_ads_are_sorted_by_name() {
    let ad = [ClassAd::parse_new("[bb = 1; a = \"x\"; C = a]").unwrap()];
    assert_eq!(print::ads(Form::Long, &ad, &[], true), "a = \"x\"\nbb = 1\nC = a\n\n");
    assert_eq!(
        print::ads(Form::Json, &ad, &["bb".into(), "A".into()], true),
        "[\n{\n  \"a\": \"x\",\n  \"bb\": 1\n}\n]\n"
    );
    assert!(
        print::ads(Form::Xml, &ad, &["bb".into()], true)
            .contains("<c>\n    <a n=\"bb\"><i>1</i></a>\n</c>\n")
    );
    assert_eq!(print::ads(Form::Json, &[], &[], true), "");
    assert_eq!(print::ads(Form::Json, &[], &[], false), "[\n]\n");
}
