//! The host's monotonic clock, which is the same for all processes from one boot to the next.

use std::sync::OnceLock;

use model::Moment;

/// Now, as other processes of this host understand it.
pub fn moment() -> Moment {
    static BOOT: OnceLock<u64> = OnceLock::new();
    let boot = *BOOT.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    });
    Moment { boot, mono_ms: monotonic_ms().unwrap_or(0) }
}

/// Milliseconds since the host was started, less the time that it was suspended; `None` where there is no such clock.
pub fn monotonic_ms() -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours and large enough.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) } != 0;
    let seconds = u64::try_from(now.tv_sec).ok()?;
    (!failed).then_some(seconds * 1_000 + now.tv_nsec as u64 / 1_000_000)
}

#[test]
fn it_goes_on_and_does_not_jump() {
    let (first, second) = (monotonic_ms().unwrap(), monotonic_ms().unwrap());
    assert!(first > 0 && second >= first && second < first + 60_000);
}
