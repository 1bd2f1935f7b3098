//! Good examples, damaged: what a random generator needs to get behind the first line of a parser.

use std::path::{Path, PathBuf};

use bolero::{Driver, ValueGenerator};

/// Longest input that is made.
const LONGEST: usize = 16 << 10;

/// Makes damaged examples.
#[derive(Debug)]
pub struct Damaged {
    /// Good ones.
    pub examples: Vec<Vec<u8>>,
    /// What is put in.
    pub words: &'static [&'static [u8]],
}

/// An input, which shows itself as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Input(pub Vec<u8>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

fn below(driver: &mut impl Driver, limit: usize) -> Option<usize> {
    Some(driver.produce::<u32>()? as usize % limit.max(1))
}

impl Damaged {
    fn example(&self, driver: &mut impl Driver) -> Option<&[u8]> {
        let at = below(driver, self.examples.len())?;
        Some(self.examples.get(at).map_or(b"", Vec::as_slice))
    }
}

impl ValueGenerator for Damaged {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        let mut bytes = self.example(driver)?.to_vec();
        for _ in 0..=below(driver, 8)? {
            let at = below(driver, bytes.len() + 1)?;
            match below(driver, 8)? {
                0 if at < bytes.len() => bytes[at] = driver.produce()?,
                1 if at < bytes.len() => bytes[at] ^= 1 << below(driver, 8)?,
                2 => {
                    let end = (at + 1 + below(driver, 24)?).min(bytes.len());
                    bytes.drain(at.min(end)..end);
                }
                3 => {
                    let other = self.example(driver)?;
                    let start = below(driver, other.len() + 1)?;
                    let end = (start + below(driver, 200)?).min(other.len());
                    bytes.splice(at..at, other[start..end].iter().copied());
                }
                4 => {
                    // Many of the same: depth and length.
                    let end = (at + 1 + below(driver, 12)?).min(bytes.len());
                    let piece = bytes[at.min(end)..end].to_vec();
                    let again = piece.repeat(1 << below(driver, 10)?);
                    bytes.splice(at..at, again);
                }
                5 => {
                    let raw: u64 = driver.produce()?;
                    bytes.splice(at..at, raw.to_le_bytes());
                }
                _ => {
                    let word = self.words.get(below(driver, self.words.len())?).copied().unwrap_or_default();
                    bytes.splice(at..at, word.iter().copied());
                }
            }
            bytes.truncate(LONGEST);
        }
        Some(Input(bytes))
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The inputs that are kept for a target: each was interesting once.
pub fn kept(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(&repository().join("tests/corpus/fuzz").join(target), usize::MAX)
}

/// The beginnings of the files in a directory of the repository and below it, as examples.
pub fn examples(dir: &str, extension: &str, longest: usize) -> Vec<Vec<u8>> {
    let all = files(&repository().join(dir), longest);
    let wanted = |path: &Path| path.extension().is_some_and(|e| e == extension) || extension.is_empty();
    all.into_iter().filter(|(path, _)| wanted(path)).map(|(_, bytes)| bytes).collect()
}

/// The strings of one field in a file of JSON lines, as examples.
pub fn fields(file: &str, field: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(repository().join(file)).unwrap_or_default();
    let values = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    values.filter_map(|value| Some(value[field].as_str()?.as_bytes().to_vec())).collect()
}

fn files(dir: &Path, longest: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, longest));
        } else if let Ok(mut bytes) = std::fs::read(&path) {
            bytes.truncate(longest);
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}
