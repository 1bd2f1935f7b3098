//! The macro functions: `$ENV`, `$INT`, `$REAL`, `$STRING`, `$EVAL`, `$CHOICE`, `$SUBSTR`, `$F..`, `$DIRNAME`,
//! `$BASENAME`, `$RANDOM_INTEGER`, `$RANDOM_CHOICE`.
//!
//! An argument that is the name of a macro stands for its value; anything else stands for itself.

use crate::expand::{Expander, Problem, is_mark};
use crate::printf;
use crate::scalar::{self, Scalar};

const PLAIN: [&str; 10] =
    ["ENV", "INT", "REAL", "STRING", "EVAL", "CHOICE", "SUBSTR", "DIRNAME", "BASENAME", "RANDOM_INTEGER"];

/// True for the name of a function; `$F` takes its options in its name.
pub(crate) fn is_function(word: &str) -> bool {
    PLAIN.contains(&word)
        || word == "RANDOM_CHOICE"
        || word.strip_prefix('F').is_some_and(|o| o.bytes().all(|b| b"fpdnxbqauw".contains(&b)))
}

/// Calls a function with the text between its parentheses.
pub(crate) fn call(x: &mut Expander<'_>, function: &str, body: &str) -> Result<String, Problem> {
    if function == "EVAL" {
        return eval(x, body);
    }
    let mut args = Vec::new();
    for arg in split(body) {
        let arg = if arg.contains('$') { x.inner(arg)? } else { arg.to_owned() };
        if arg.chars().any(is_mark) {
            return Err(Problem::NotYet);
        }
        args.push(arg.trim().to_owned());
    }
    let count = args.len();
    let bad = |message: String| Problem::Function { function: function.to_owned(), message };
    let expect = |least: usize, most: usize| {
        if (least..=most).contains(&count) && !args[0].is_empty() {
            Ok(())
        } else if least == most {
            Err(bad(format!("takes {least} argument(s), not {count}")))
        } else {
            Err(bad(format!("takes {least} to {most} arguments, not {count}")))
        }
    };
    match function {
        "ENV" => {
            let (name, default) = match body.split_once(':') {
                Some((name, default)) => (name.trim().to_owned(), Some(default)),
                None => (args[0].clone(), None),
            };
            match (x.names.env(&name), default) {
                (Some(value), _) => Ok(value),
                (None, Some(default)) => x.inner(default),
                (None, None) => Ok("UNDEFINED".to_owned()),
            }
        }
        "INT" | "REAL" | "STRING" => {
            expect(1, 2)?;
            let text = x.value_of(&args[0])?.unwrap_or_else(|| args[0].clone());
            if text.chars().any(is_mark) {
                return Err(Problem::NotYet);
            }
            convert(function, &text, args.get(1).map(String::as_str), x.names.now()).map_err(bad)
        }
        "CHOICE" => {
            expect(2, usize::MAX)?;
            let index = integer(x, &args[0])?.ok_or_else(|| bad(format!("{:?} is not an index", args[0])))?;
            let list = choices(x, &args[1..])?;
            let picked = usize::try_from(index).ok().and_then(|i| list.get(i));
            picked.cloned().ok_or_else(|| bad(format!("index {index} in a list of {}", list.len())))
        }
        "SUBSTR" => {
            expect(2, 3)?;
            let text = x.value_of(&args[0])?.unwrap_or_default();
            if text.chars().any(is_mark) {
                return Err(Problem::NotYet);
            }
            let mut numbers = [0, i64::MAX];
            for (slot, arg) in numbers.iter_mut().zip(&args[1..]) {
                *slot = integer(x, arg)?.ok_or_else(|| bad(format!("{arg:?} is not an integer")))?;
            }
            Ok(substr(&text, numbers[0], numbers[1]))
        }
        "DIRNAME" => {
            expect(1, 1)?;
            Ok(file_parts("p", &path(x, &args[0])?, x.names.directory()))
        }
        "BASENAME" => {
            expect(1, 2)?;
            let base = file_parts("nx", &path(x, &args[0])?, x.names.directory());
            let suffix = args.get(1).map_or("", String::as_str);
            Ok(base.strip_suffix(suffix).map_or(base.clone(), str::to_owned))
        }
        "RANDOM_CHOICE" => {
            let list = choices(x, &args)?;
            let drawn = x.names.random().ok_or(Problem::NotYet)?;
            if list.is_empty() {
                return Err(bad("nothing to choose from".into()));
            }
            Ok(list[(drawn % list.len() as u64) as usize].clone())
        }
        "RANDOM_INTEGER" => {
            expect(2, 3)?;
            let mut numbers = [0, 0, 1];
            for (slot, arg) in numbers.iter_mut().zip(&args) {
                *slot = integer(x, arg)?.ok_or_else(|| bad(format!("{arg:?} is not an integer")))?;
            }
            let [low, high, step] = numbers;
            if high < low || step < 1 {
                return Err(bad(format!("no numbers from {low} to {high} in steps of {step}")));
            }
            let drawn = x.names.random().ok_or(Problem::NotYet)?;
            let count = high.abs_diff(low) / step.unsigned_abs() + 1;
            Ok((i128::from(low) + i128::from(drawn % count.max(1)) * i128::from(step)).to_string())
        }
        _ => {
            expect(1, 1)?;
            let options = function.strip_prefix('F').unwrap_or("");
            let path = path(x, &args[0])?;
            Ok(file_parts(options, &path, x.names.directory()))
        }
    }
}

/// `$EVAL(expression)`: the whole body is one expression, commas and all.
fn eval(x: &mut Expander<'_>, body: &str) -> Result<String, Problem> {
    let text = x.inner(body)?;
    if text.chars().any(is_mark) {
        return Err(Problem::NotYet);
    }
    let value = scalar::evaluate_at(&text, x.names.now())
        .map_err(|message| Problem::Function { function: "EVAL".into(), message })?;
    Ok(match value {
        Scalar::Text(text) => text,
        other => other.to_string(),
    })
}

fn convert(function: &str, text: &str, format: Option<&str>, now: i64) -> Result<String, String> {
    let value = match (function, scalar::evaluate_at(text, now)) {
        ("STRING", Err(_)) => Scalar::Undefined,
        (_, value) => value?,
    };
    match function {
        "INT" => {
            let number = value.as_integer().ok_or_else(|| format!("{text:?} is not a number"))?;
            printf::integer(format.unwrap_or("%d"), number)
        }
        "REAL" => {
            let number = value.as_real().ok_or_else(|| format!("{text:?} is not a number"))?;
            let digits = printf::real(format.unwrap_or("%.16G"), number)?;
            // Asked for in so many words, a real looks like one.
            let whole = digits.bytes().all(|b| b.is_ascii_digit() || b == b'-');
            Ok(if whole && format.is_some_and(|f| f.ends_with(['g', 'G'])) { digits + ".0" } else { digits })
        }
        _ => {
            let text = match value {
                Scalar::Text(text) => text,
                _ => text.to_owned(),
            };
            printf::string(format.unwrap_or("%s"), &text)
        }
    }
}

/// An integer, or the integer value of a macro.
fn integer(x: &mut Expander<'_>, arg: &str) -> Result<Option<i64>, Problem> {
    if let Ok(number) = arg.parse() {
        return Ok(Some(number));
    }
    let text = x.value_of(arg)?.unwrap_or_else(|| arg.to_owned());
    if text.chars().any(is_mark) {
        return Err(Problem::NotYet);
    }
    if let Ok(number) = text.trim().parse() {
        return Ok(Some(number));
    }
    Ok(scalar::evaluate_at(&text, x.names.now()).ok().and_then(|v| v.as_integer()))
}

/// A list written out, or the name of a macro that holds one.
fn choices(x: &mut Expander<'_>, args: &[String]) -> Result<Vec<String>, Problem> {
    if let [name] = args
        && let Some(value) = x.value_of(name)?
    {
        if value.chars().any(is_mark) {
            return Err(Problem::NotYet);
        }
        return Ok(value.split(',').map(|i| i.trim().to_owned()).collect());
    }
    Ok(args.to_vec())
}

/// The value of a macro, or the argument itself.
fn path(x: &mut Expander<'_>, arg: &str) -> Result<String, Problem> {
    let text = match x.value_of(arg)? {
        Some(value) => value,
        None => arg.to_owned(),
    };
    if text.chars().any(is_mark) {
        return Err(Problem::NotYet);
    }
    Ok(text)
}

fn substr(text: &str, start: i64, length: i64) -> String {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len() as i64;
    let first = if start < 0 { size.saturating_add(start).max(0) } else { start.min(size) };
    let last = if length < 0 { size.saturating_add(length) } else { first.saturating_add(length) }
        .clamp(first, size);
    chars[first as usize..last as usize].iter().collect()
}

/// The parts of a file name that the option letters ask for.
fn file_parts(options: &str, path: &str, directory: &str) -> String {
    let has = |c: char| options.contains(c);
    // Quotes around the value belong to its presentation, not to the name.
    let mut path = path.trim().trim_matches('"').to_owned();
    if has('f') && !path.starts_with('/') && !path.is_empty() {
        path = format!("{}/{path}", directory.trim_end_matches('/'));
    }
    let (folder, base) = match path.rfind('/') {
        Some(slash) => path.split_at(slash + 1),
        None => ("", path.as_str()),
    };
    let (stem, extension) = match base.rfind('.') {
        Some(dot) if dot > 0 => base.split_at(dot),
        _ => (base, ""),
    };
    let mut out = String::new();
    if options.contains(['p', 'd', 'n', 'x']) {
        let folder = if has('p') {
            folder
        } else if has('d') {
            // One more directory for each d.
            let mut start = folder.len();
            for _ in 0..options.matches('d').count() {
                let inner = folder[..start].strip_suffix('/').unwrap_or(&folder[..start]);
                start = inner.rfind('/').map_or(0, |slash| slash + 1);
            }
            &folder[start..]
        } else {
            ""
        };
        let alone = !options.contains(['n', 'x']);
        out.push_str(if has('b') && alone { folder.strip_suffix('/').unwrap_or(folder) } else { folder });
        if has('n') {
            out.push_str(stem);
        }
        if has('x') {
            let bare = has('b') && !has('n');
            out.push_str(if bare { extension.strip_prefix('.').unwrap_or(extension) } else { extension });
        }
    } else {
        out.push_str(&path);
    }
    if has('u') {
        out = out.replace('\\', "/");
    }
    if has('w') {
        out = out.replace('/', "\\");
    }
    if has('q') {
        let quote = if has('a') { '\'' } else { '"' };
        out = format!("{quote}{out}{quote}");
    }
    out
}

/// Splits arguments at commas outside parentheses, brackets and double quotes.
fn split(body: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut quoted, mut start) = (0i32, false, 0);
    for (i, b) in body.bytes().enumerate() {
        match b {
            b'"' => quoted = !quoted,
            b'(' | b'{' | b'[' if !quoted => depth += 1,
            b')' | b'}' | b']' if !quoted => depth -= 1,
            b',' if !quoted && depth <= 0 => {
                parts.push(&body[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_come_apart() {
        let parts = |o: &str| file_parts(o, "/a/b/c.tar.gz", "/home");
        assert_eq!(parts("p"), "/a/b/");
        assert_eq!(parts("pb"), "/a/b");
        assert_eq!(parts("d"), "b/");
        assert_eq!(parts("n"), "c.tar");
        assert_eq!(parts("x"), ".gz");
        assert_eq!(parts("xb"), "gz");
        assert_eq!(parts("dnx"), "b/c.tar.gz");
        assert_eq!(parts("qa"), "'/a/b/c.tar.gz'");
        assert_eq!(file_parts("f", "x.txt", "/home/"), "/home/x.txt");
        assert_eq!(file_parts("x", ".profile", ""), "");
    }

    #[test]
    fn substrings_stay_in_bounds() {
        assert_eq!(substr("abc", 1, i64::MAX), "bc");
        assert_eq!(substr("abc", -9, 2), "ab");
        assert_eq!(substr("abc", 9, 2), "");
        assert_eq!(substr("abc", 2, -2), "");
        assert_eq!(substr("abc", i64::MIN, i64::MIN), "");
    }
}
