//! Names: which are legal, and which one the user probably meant.

/// True for a name that a definition or a reference may use: letters, digits, `_` and `.`.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= model::limits::NAME_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

/// Number of single-character edits between two names, without regard to case; swapping neighbours counts as one.
/// Gives up (returns `limit + 1`) when the names are further apart than `limit`.
pub fn distance(a: &str, b: &str, limit: usize) -> usize {
    let a: Vec<u8> = a.bytes().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<u8> = b.bytes().map(|c| c.to_ascii_lowercase()).collect();
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j - 1] + same).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()].min(limit + 1)
}

/// The known name nearest to a misspelt one, if any is near enough to be a likely slip.
pub fn suggest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Short names have many neighbours by chance.
    let limit = match wrong.len() {
        0..=3 => return None,
        4..=6 => 1,
        7..=11 => 2,
        _ => 3,
    };
    known
        .into_iter()
        .map(|name| (distance(wrong, name, limit), name))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        let known = ["request_memory", "requirements", "arguments", "queue"];
        assert_eq!(suggest("reqest_memory", known), Some("request_memory"));
        assert_eq!(suggest("argumetns", known), Some("arguments"));
        assert_eq!(suggest("REQUIRMENTS", known), Some("requirements"));
        assert_eq!(suggest("foo", known), None);
        assert_eq!(suggest("dataset_name", known), None);
    }
}
