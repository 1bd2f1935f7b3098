//! Sizes with units: `2 GB`, `1.5K`, `300`.

/// A size in units of `unit` bytes, rounded up; `None` when the text is not a size. Without a suffix the number is in
/// those units already.
pub(crate) fn size(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = text.split_at(digits);
    if !number.starts_with(|c: char| c.is_ascii_digit()) && !number.starts_with('.') {
        return None;
    }
    let suffix = suffix.trim_start().to_ascii_uppercase();
    let scale: u64 = match suffix.strip_suffix('B').unwrap_or(&suffix) {
        "" if suffix.is_empty() => unit,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        "P" => 1 << 50,
        // A lone B is more likely a slip than a wish for bytes.
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = u128::from(whole) * u128::from(scale);
        return u64::try_from(bytes.div_ceil(u128::from(unit))).ok().filter(|n| i64::try_from(*n).is_ok());
    }
    let value: f64 = number.parse().ok()?;
    let units = (value * scale as f64 / unit as f64).ceil();
    (units.is_finite() && units < i64::MAX as f64).then_some(units as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up() {
        let mib = |text| size(text, 1 << 20);
        let kib = |text| size(text, 1 << 10);
        assert_eq!(mib("2 GB"), Some(2048));
        assert_eq!(mib("1025K"), Some(2));
        assert_eq!(mib("2 TB"), Some(2 << 20));
        assert_eq!(mib("1500"), Some(1500));
        assert_eq!(kib("3M"), Some(3072));
        assert_eq!(kib("1.5K"), Some(2));
        assert_eq!(kib(".5m"), Some(512));
        for bad in ["", "5B", "5 parsecs", "GB", "-1", "1.2.3", "99999999999999999999P", "1e9"] {
            assert_eq!(mib(bad), None, "{bad}");
        }
    }
}
