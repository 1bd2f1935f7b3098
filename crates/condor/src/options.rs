//! Options with a single dash, anywhere on the line, that may be shortened.

/// The arguments that are still to be read.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    rest: std::slice::Iter<'a, String>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(all: &'a [String]) -> Self {
        Self { rest: all.iter() }
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().map(String::as_str)
    }

    /// The value of an option.
    pub(crate) fn value_of(&mut self, command: &str, option: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("{command}: {option} needs a value behind it\n"))
    }

    /// Everything up to the next option.
    pub(crate) fn words(&mut self) -> Vec<&'a str> {
        let mut words = Vec::new();
        while let Some(word) = self.rest.as_slice().first().filter(|word| !word.starts_with('-')) {
            words.push(word.as_str());
            self.rest.next();
        }
        words
    }
}

/// Is an argument this option, with at least so many of its letters? One dash or two.
pub(crate) fn is(argument: &str, name: &str, letters: usize) -> bool {
    let Some(word) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { return false };
    let word = word.split(':').next().unwrap_or(word);
    word.len() >= letters && name.starts_with(&word.to_ascii_lowercase())
}

/// What stands behind the colon of `-af:jh`.
pub(crate) fn letters_of(argument: &str) -> &str {
    argument.split_once(':').map_or("", |(_, letters)| letters)
}

/// An option, in contrast to a word; a lone dash is a word.
pub(crate) fn is_option(argument: &str) -> bool {
    argument.len() > 1 && argument.starts_with('-')
}
