//! The conditions of `if` and `elif`: deliberately few.

use crate::expand::{Names, Value};

/// Decides an expanded condition. The error says why it is none.
pub(crate) fn evaluate(text: &str, names: &dyn Names, version: [u32; 3]) -> Result<bool, String> {
    let text = text.trim();
    match text.strip_prefix('!') {
        Some(rest) => plain(rest.trim_start(), names, version).map(|verdict| !verdict),
        None => plain(text, names, version),
    }
}

fn plain(text: &str, names: &dyn Names, version: [u32; 3]) -> Result<bool, String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    if word.eq_ignore_ascii_case("defined") {
        if rest.split_whitespace().count() > 1 {
            return Err(format!("defined takes one name, not {rest:?}"));
        }
        return Ok(matches!(names.lookup(rest), Some(Value::Text(value)) if !value.is_empty())
            || matches!(names.lookup(rest), Some(Value::Opaque { .. })));
    }
    if word.eq_ignore_ascii_case("version") {
        return compare_version(rest, version);
    }
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "t" => return Ok(true),
        "false" | "no" | "f" | "" => return Ok(false),
        _ => {}
    }
    match text.parse::<f64>() {
        Ok(number) if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            Ok(number != 0.0)
        }
        _ => Err(format!("{text:?} is not a condition: comparisons and logic are not supported here")),
    }
}

fn compare_version(text: &str, ours: [u32; 3]) -> Result<bool, String> {
    let wrong = || format!("{text:?} is not a comparison of versions");
    let (operator, wanted) = ["==", "!=", ">=", "<=", ">", "<"]
        .iter()
        .find_map(|o| Some((*o, text.strip_prefix(o)?.trim())))
        .ok_or_else(wrong)?;
    let mut numbers = Vec::new();
    for part in wanted.split('.') {
        numbers.push(part.parse::<u32>().map_err(|_| wrong())?);
    }
    if !(2..=3).contains(&numbers.len()) {
        return Err(wrong());
    }
    // `version >= 8.1` says nothing about the third number.
    let order = ours[..numbers.len()].cmp(&numbers[..]);
    Ok(match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        ">=" => order.is_ge(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_lt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_the_numbers_given() {
        let ours = [25, 14, 1];
        for (text, verdict) in [
            (">= 8.1.6", true),
            ("== 25.14", true),
            ("> 25.14", false),
            ("<25.14.2", true),
            ("!= 25.14.1", false),
        ] {
            assert_eq!(compare_version(text, ours), Ok(verdict), "{text}");
        }
        for bad in ["", "25", ">= 25", ">= x", ">= 1.2.3.4", ">="] {
            assert!(compare_version(bad, ours).is_err(), "{bad}");
        }
    }
}
