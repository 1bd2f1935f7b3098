//! File name patterns with `*`, `?` and `[a-z]`, matched by hand: no backtracking beyond the last star.

/// True when a name matches a pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut pi, mut ni) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while ni < n.len() {
        match step(&p, pi, n[ni]) {
            Some(Step::Star) => {
                star = Some((pi + 1, ni));
                pi += 1;
            }
            Some(Step::Took(width)) => {
                pi += width;
                ni += 1;
            }
            None => match star {
                // Give the last star one more character and try again behind it.
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    pi = after;
                    ni = from + 1;
                }
                None => return false,
            },
        }
    }
    p[pi..].iter().all(|c| *c == '*')
}

enum Step {
    Star,
    Took(usize),
}

fn step(p: &[char], at: usize, c: char) -> Option<Step> {
    match *p.get(at)? {
        '*' => Some(Step::Star),
        '?' => Some(Step::Took(1)),
        '[' => match class(&p[at..], c) {
            Some((true, width)) => Some(Step::Took(width)),
            Some((false, _)) => None,
            // An unclosed bracket is an ordinary character.
            None => (c == '[').then_some(Step::Took(1)),
        },
        other => (other == c).then_some(Step::Took(1)),
    }
}

/// Whether a bracket expression takes a character, and how many pattern characters it has.
fn class(p: &[char], c: char) -> Option<(bool, usize)> {
    let mut at = 1;
    let negated = matches!(p.get(at), Some('!' | '^'));
    at += usize::from(negated);
    let first = at;
    let mut found = false;
    loop {
        let low = *p.get(at)?;
        if low == ']' && at > first {
            return Some((found != negated, at + 1));
        }
        if p.get(at + 1) == Some(&'-') && p.get(at + 2).is_some_and(|h| *h != ']') {
            found |= (low..=p[at + 2]).contains(&c);
            at += 3;
        } else {
            found |= low == c;
            at += 1;
        }
    }
}

/// True when a path component needs matching at all.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        for (pattern, name, expected) in [
            ("*.dat", "a.dat", true),
            ("*.dat", "a.txt", false),
            ("a?c*", "abcdef", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("", "", true),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
