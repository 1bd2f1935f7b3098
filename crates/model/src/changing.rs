//! Names of what changes by itself: the clock, chance, and what a machine's sensors say. Whoever is refused for one of them now may be
//! taken later, without anybody changing anything.

/// Parts of such names.
const PARTS: [&str; 13] = [
    "time",
    "idle",
    "load",
    "clock",
    "random",
    "virtualmemory",
    "entered",
    "state",
    "activity",
    "currentrank",
    "benchmark",
    "mips",
    "kflops",
];

/// True for the name of an attribute or function whose value changes by itself, in whatever letters.
pub fn changes_by_itself(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

/// The words of an expression outside of quotes: its names, functions and numbers.
pub fn words_of(expression: &str) -> Vec<String> {
    // Every second part stands in quotes.
    let code: String = expression.split('"').step_by(2).collect();
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_chance_and_sensors_change_by_themselves() {
        for name in ["time", "CurrentTime", "KeyboardIdle", "LoadAvg", "ClockMin", "random", "KFlops"] {
            assert!(changes_by_itself(name), "{name}");
        }
        for name in ["Arch", "Memory", "HasDocker", "Machine"] {
            assert!(!changes_by_itself(name), "{name}");
        }
        assert_eq!(words_of("LoadAvg < 0.3 && Machine == \"time()\""), ["LoadAvg", "0", "3", "Machine"]);
    }
}
