//! The `--jsonl` forms. The keys are those of the vector files in `tests/vectors/classad`.

use classad::{ClassAd, Expr, Scope, accepts, rank};
use serde_json::{Value as Json, json};
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::process::ExitCode;

/// Longest accepted line.
const LINE_BYTES: u64 = 64 << 20;

/// Answers every line with a line; what cannot be answered becomes `{"error"}`.
pub(super) fn run(answer: fn(&Json) -> Result<Json, String>) -> Result<ExitCode, String> {
    let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) => return Err(format!("cannot read standard input: {e}")),
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let result = serde_json::from_slice(&line)
            .map_err(|e| format!("not JSON: {e}"))
            .and_then(|row: Json| answer(&row))
            .unwrap_or_else(|why| json!({ "error": why }));
        let mut written = writeln!(output, "{result}");
        // A tool that waits for each answer must get it; one that streams should not pay for that.
        if input.buffer().is_empty() {
            written = written.and_then(|()| output.flush());
        }
        if written.is_err() {
            // The reader went away: nothing left to do.
            return Ok(ExitCode::SUCCESS);
        }
    }
    let _ = output.flush();
    Ok(ExitCode::SUCCESS)
}

fn text<'j>(row: &'j Json, key: &str) -> Result<&'j str, String> {
    row[key].as_str().ok_or_else(|| format!("key `{key}` is missing or not a string"))
}

fn ad(row: &Json, key: &str) -> Result<ClassAd, String> {
    ClassAd::parse_new(text(row, key)?).map_err(|e| format!("{key}: {e}"))
}

fn optional_ad(row: &Json, key: &str) -> Result<Option<ClassAd>, String> {
    if row[key].is_null() { Ok(None) } else { ad(row, key).map(Some) }
}

fn expr(row: &Json, key: &str) -> Result<Expr, String> {
    Expr::parse(text(row, key)?).map_err(|e| format!("{key}: {e}"))
}

pub(super) fn eval(row: &Json) -> Result<Json, String> {
    let (my, target) = (optional_ad(row, "my")?, optional_ad(row, "target")?);
    let expr = expr(row, "expr")?;
    let empty = ClassAd::new();
    let mut scope = match (&my, &target) {
        (Some(my), _) => Scope::of(my),
        (None, Some(_)) => Scope::of(&empty),
        (None, None) => Scope::new(),
    };
    if let Some(target) = &target {
        scope = scope.target(target);
    }
    let value = scope.context(super::context()).eval(&expr);
    Ok(json!({ "type": value.kind().name(), "value": value.to_string() }))
}

pub(super) fn parse(row: &Json) -> Result<Json, String> {
    let input = text(row, "input")?;
    let result = match text(row, "as")? {
        "expr" => Expr::parse(input).err(),
        "ad" => ClassAd::parse_new(input).err(),
        "oldad" => ClassAd::parse_old(input).err(),
        other => return Err(format!("`as` must be expr, ad or oldad, not {other}")),
    };
    Ok(match result {
        None => json!({ "ok": true }),
        Some(e) => {
            json!({ "ok": false, "message": e.message(), "start": e.span().start, "end": e.span().end })
        }
    })
}

pub(super) fn print(row: &Json) -> Result<Json, String> {
    match text(row, "kind")? {
        "expr" => {
            let expr = expr(row, "input")?;
            let new = expr.to_string();
            let stable = Expr::parse(&new).is_ok_and(|again| again.to_string() == new);
            Ok(json!({ "new": new, "old": expr.to_old_string(), "stable": stable }))
        }
        "ad" => {
            let ad = ad(row, "input")?;
            Ok(json!({
                "new": ad.to_string(),
                "old": ad.to_old_string(),
                "pretty": ad.to_pretty_string(),
                "json": ad.to_json(),
            }))
        }
        "oldad" => {
            let ad = ClassAd::parse_old_lenient(text(row, "input")?);
            Ok(json!({ "new": ad.to_string(), "old": ad.to_old_string() }))
        }
        "flatten" => {
            let ad = ad(row, "ad")?;
            Ok(json!({ "new": ad.flatten(&expr(row, "input")?).to_string() }))
        }
        other => Err(format!("`kind` must be expr, ad, oldad or flatten, not {other}")),
    }
}

pub(super) fn match_(row: &Json) -> Result<Json, String> {
    let (left, right) = (ad(row, "left")?, ad(row, "right")?);
    let (left_matches_right, right_matches_left) = (accepts(&right, &left), accepts(&left, &right));
    Ok(json!({
        "left_matches_right": left_matches_right,
        "right_matches_left": right_matches_left,
        "symmetric": left_matches_right && right_matches_left,
        "left_rank": rank(&left, &right),
        "right_rank": rank(&right, &left),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Every recorded row, through the function that answers it.
    fn agrees(file: &str, answer: fn(&Json) -> Result<Json, String>, compared: fn(&str) -> bool) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/classad").join(file);
        let text = std::fs::read_to_string(path).expect("vectors are in the repository");
        for line in text.lines() {
            let row: Json = serde_json::from_str(line).expect("a vector is JSON");
            let got = answer(&row).unwrap_or_else(|why| panic!("{why}: {line}"));
            for (key, value) in
                got.as_object().expect("an answer is an object").iter().filter(|(k, _)| compared(k))
            {
                assert_eq!(row.get(key), Some(value), "{key} of {line}");
            }
        }
    }

    #[test]
    fn batch_forms_answer_as_recorded() {
        agrees("eval.jsonl", eval, |_| true);
        agrees("unparse.jsonl", print, |_| true);
        // Ranks are compared, and those that disagree counted, in the tests of the classad room.
        agrees("match.jsonl", match_, |column| !column.ends_with("_rank"));
    }

    #[test]
    fn what_does_not_parse_is_located() {
        let answer = parse(&json!({ "as": "expr", "input": "1 +" })).expect("an answer");
        assert_eq!((&answer["ok"], &answer["start"]), (&json!(false), &json!(3)));
        assert_eq!(parse(&json!({ "as": "ad", "input": "[a = 1]" })), Ok(json!({ "ok": true })));
        assert!(parse(&json!({ "as": "poem", "input": "" })).is_err());
    }
}
