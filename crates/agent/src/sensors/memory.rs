//! Memory and swap from the text of /proc/meminfo.

use classad::Value;

use super::{Attributes, put as add};

/// A figure of /proc/meminfo in KiB.
pub fn figure(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// TotalMemory in MiB, TotalVirtualMemory (free swap and free memory) in KiB.
pub(crate) fn put(meminfo: &str, reserved_mib: u64, out: &mut Attributes) {
    let total = figure(meminfo, "MemTotal").map(|kib| (kib / 1_024).saturating_sub(reserved_mib));
    add(out, "TotalMemory", total.map(|n| Value::Int(n as i64)));
    let free = figure(meminfo, "MemFree").map(|free| free + figure(meminfo, "SwapFree").unwrap_or(0));
    add(out, "TotalVirtualMemory", free.map(|n| Value::Int(n as i64)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let text =
            "MemTotal:       16384000 kB\nMemFree:         1000 kB\nSwapTotal: 9 kB\nSwapFree:  24 kB\n";
        assert_eq!(figure(text, "MemTotal"), Some(16_384_000));
        assert_eq!(figure(text, "Mem"), None);
        let mut out = Attributes::new();
        put(text, 1_000, &mut out);
        assert_eq!(out[0].1, Some(Value::Int(15_000)));
        assert_eq!(out[1].1, Some(Value::Int(1_024)));
    }
}
