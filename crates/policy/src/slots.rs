//! How a machine is divided: SLOT_TYPE_N and NUM_SLOTS_TYPE_N to a list of plans, and how load and keyboard are shared
//! out among the slots.
//!
//! What a slot then does is in `slot` and `machine`. A later change of the layout needs a new machine: slots that run
//! jobs cannot be cut anew.

use config::{Config, Diagnostic, Diagnostics};

use crate::load::error;
use crate::slot::SlotId;

/// What a machine or a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Cores.
    pub cpus: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Free disk.
    pub disk_kib: u64,
    /// Swap space and free memory.
    pub swap_kib: u64,
    /// GPUs.
    pub gpus: u64,
}

impl Resources {
    /// What is left without another; None if it does not fit.
    pub(crate) fn less(self, other: Self) -> Option<Self> {
        Some(Self {
            cpus: self.cpus.checked_sub(other.cpus)?,
            memory_mib: self.memory_mib.checked_sub(other.memory_mib)?,
            disk_kib: self.disk_kib.checked_sub(other.disk_kib)?,
            swap_kib: self.swap_kib.checked_sub(other.swap_kib)?,
            gpus: self.gpus.checked_sub(other.gpus)?,
        })
    }

    /// Takes back what was cut off.
    pub(crate) fn give(&mut self, other: Self) {
        self.cpus += other.cpus;
        self.memory_mib += other.memory_mib;
        self.disk_kib += other.disk_kib;
        self.swap_kib += other.swap_kib;
        self.gpus += other.gpus;
    }
}

/// Static slots run one job at a time; a partitionable slot is cut up by its claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// Fixed size.
    Static,
    /// Its claims get slots of their own.
    Partitionable,
    /// Cut from a partitionable slot; vanishes with its claim.
    Dynamic,
}

/// A part of what changes while a machine runs: its free disk, its free virtual memory. In millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// Everything.
    pub const ALL: Self = Self(1_000_000);

    fn new(part: f64) -> Self {
        Self((part.clamp(0.0, 1.0) * 1e6).round() as u32)
    }

    /// That part of an amount.
    pub fn of(self, amount: u64) -> u64 {
        (u128::from(amount) * u128::from(self.0) / 1_000_000) as u64
    }
}

/// One slot to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub id: SlotId,
    /// Its kind.
    pub kind: SlotKind,
    /// What it has.
    pub resources: Resources,
    /// Its part of the machine's disk, however much that is.
    pub disk: Share,
    /// Its part of the machine's virtual memory.
    pub swap: Share,
    /// Which SLOT_TYPE_N it is of, if any.
    pub of_type: Option<u32>,
}

impl Plan {
    /// A slot that shares disk and virtual memory with nobody.
    pub fn new(number: u32, kind: SlotKind, resources: Resources) -> Self {
        let id = SlotId::new(number);
        Self { id, kind, resources, disk: Share::ALL, swap: Share::ALL, of_type: None }
    }
}

/// The slots of a machine.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// In the order of their numbers.
    pub plans: Vec<Plan>,
    /// How many slots, counted from the first, see the console (SLOTS_CONNECTED_TO_CONSOLE).
    pub see_console: Option<u32>,
    /// How many see the keyboard (SLOTS_CONNECTED_TO_KEYBOARD).
    pub see_keyboard: Option<u32>,
    /// Slots that did not fit.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Auto,
    /// Between 0 and 1.
    Share(f64),
    Absolute(u64),
}

/// What a slot type asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wish {
    cpus: Amount,
    memory: Amount,
    disk: Amount,
    swap: Amount,
    gpus: Amount,
}

/// One slot that the configuration asks for, and the name under which it does.
#[derive(Debug, Clone)]
struct Wanted {
    name: String,
    wish: Wish,
    kind: SlotKind,
    of_type: Option<u32>,
}

/// Most slot types: NUM_SLOTS_TYPE_1 to this.
const TYPES: u32 = 64;

impl Layout {
    /// One static slot with everything: for tests and simple machines.
    pub fn whole(resources: Resources) -> Self {
        Self { plans: vec![Plan::new(1, SlotKind::Static, resources)], ..Self::default() }
    }

    /// One partitionable slot with everything.
    pub fn partitionable(resources: Resources) -> Self {
        Self { plans: vec![Plan::new(1, SlotKind::Partitionable, resources)], ..Self::default() }
    }

    /// The layout of a machine that lends itself to a pool: one partitionable slot with everything, unless the
    /// configuration divides it. One that asks for more than there is is refused: a slot that silently is not there
    /// would be missed only when its jobs do not run.
    pub fn of_machine(config: &Config<'_>, total: Resources) -> Result<Self, Diagnostics> {
        let given = |name: &str| config.text(name).is_ok_and(|t| !t.trim().is_empty());
        let divided = given("NUM_SLOTS") || (1..=TYPES).any(|n| given(&format!("NUM_SLOTS_TYPE_{n}")));
        let layout = if divided { Self::from_config(config, total)? } else { Self::partitionable(total) };
        if layout.warnings.is_empty() && !layout.plans.is_empty() {
            return Ok(layout);
        }
        let mut errors = layout.warnings;
        if errors.is_empty() {
            errors.push(error(config, "NUM_SLOTS", "a machine needs at least one slot".to_owned()));
        }
        for finding in &mut errors {
            finding.severity = config::Severity::Error;
        }
        Err(Diagnostics(errors))
    }

    /// Reads the layout. Without slot types there is one static slot per core (or NUM_SLOTS of them), as ever.
    pub fn from_config(config: &Config<'_>, total: Resources) -> Result<Self, Diagnostics> {
        let mut errors = Vec::new();
        let mut wanted = Vec::new();
        for number in 1..=TYPES {
            let count_name = format!("NUM_SLOTS_TYPE_{number}");
            let count = whole(config, &count_name, &mut errors).unwrap_or(0);
            if count == 0 {
                continue;
            }
            let name = format!("SLOT_TYPE_{number}");
            let text = config.text(&name)?;
            let wish = match parse(&text) {
                Ok(wish) => wish,
                Err(problem) => {
                    errors.push(error(config, &name, format!("{name}: {problem}")));
                    continue;
                }
            };
            let partitionable = match config.boolean(&format!("{name}_PARTITIONABLE")) {
                Ok(b) => b.unwrap_or(false),
                Err(e) => {
                    errors.push(e);
                    false
                }
            };
            let kind = if partitionable { SlotKind::Partitionable } else { SlotKind::Static };
            wanted.extend((0..count).map(|_| Wanted {
                name: name.clone(),
                wish,
                kind,
                of_type: Some(number),
            }));
        }
        if wanted.is_empty() {
            let count = whole(config, "NUM_SLOTS", &mut errors).map_or(total.cpus.max(1), u64::from);
            let auto = parse("auto").map_err(|p| Diagnostics(vec![Diagnostic::error(p)]))?;
            let one = Wanted { name: "NUM_SLOTS".into(), wish: auto, kind: SlotKind::Static, of_type: None };
            wanted.extend((0..count).map(|_| one.clone()));
        }
        if wanted.len() > model::limits::SLOTS_PER_AGENT {
            errors
                .push(Diagnostic::error(format!("{} slots are more than a machine may have", wanted.len())));
        }
        let see_console = whole(config, "SLOTS_CONNECTED_TO_CONSOLE", &mut errors);
        let see_keyboard = whole(config, "SLOTS_CONNECTED_TO_KEYBOARD", &mut errors);
        if !errors.is_empty() {
            return Err(Diagnostics(errors));
        }
        let mut layout = cut(&wanted, total, |name, message| match error(config, name, message) {
            finding if finding.place.is_some() => {
                Diagnostic { severity: config::Severity::Warning, ..finding }
            }
            finding => Diagnostic::warning(finding.message),
        });
        layout.see_console = see_console;
        layout.see_keyboard = see_keyboard;
        Ok(layout)
    }
}

fn whole(config: &Config<'_>, name: &str, errors: &mut Vec<Diagnostic>) -> Option<u32> {
    match config.integer(name) {
        Ok(None) => None,
        Ok(Some(n)) if (0..=i64::from(u16::MAX)).contains(&n) => Some(n as u32),
        Ok(Some(n)) => {
            errors.push(error(config, name, format!("{name} must be a number of slots, not {n}")));
            None
        }
        Err(e) => {
            errors.push(e);
            None
        }
    }
}

/// Reads `1/4`, `25%`, `auto` (for everything) or `cpus=2, ram=1/4, disk=25%, auto`.
fn parse(text: &str) -> Result<Wish, String> {
    let all = |a| Wish { cpus: a, memory: a, disk: a, swap: a, gpus: a };
    let mut wish = all(Amount::Auto);
    for item in text.split([',', ';']).map(str::trim).filter(|i| !i.is_empty()) {
        let Some((resource, given)) = item.split_once('=') else {
            let everything = amount(item)?;
            if matches!(everything, Amount::Absolute(_)) {
                return Err(format!("{item:?} of what? write cpus={item}, or a share such as 1/4 or 25%"));
            }
            wish = all(everything);
            continue;
        };
        let value = amount(given.trim())?;
        let share_only = |value: Amount| match value {
            Amount::Absolute(_) => {
                Err(format!("{item:?}: disk and swap change over time, so write a share of them"))
            }
            share => Ok(share),
        };
        // The first letter names the resource, as ever; m and v are for those who think of memory.
        match resource.trim().chars().next().map(|c| c.to_ascii_lowercase()) {
            Some('c') => wish.cpus = value,
            Some('r' | 'm') => wish.memory = value,
            Some('d') => wish.disk = share_only(value)?,
            Some('s' | 'v') => wish.swap = share_only(value)?,
            Some('g') => wish.gpus = value,
            _ => return Err(format!("{item:?}: the resources are cpus, ram, disk, swap and gpus")),
        }
    }
    Ok(wish)
}

fn amount(text: &str) -> Result<Amount, String> {
    let bad = || format!("{text:?} is no amount: write a number, a share such as 1/4 or 25%, or auto");
    let share = |share: f64| if share > 0.0 && share <= 1.0 { Ok(Amount::Share(share)) } else { Err(bad()) };
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Amount::Auto);
    }
    if let Some(percent) = text.strip_suffix('%') {
        return share(percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0);
    }
    if let Some((above, below)) = text.split_once('/') {
        let above: u32 = above.trim().parse().map_err(|_| bad())?;
        let below: u32 = below.trim().parse().map_err(|_| bad())?;
        return share(f64::from(above) / f64::from(below));
    }
    text.parse().map(Amount::Absolute).map_err(|_| bad())
}

impl Amount {
    /// The fixed amount; None for a share of what others leave.
    fn fixed(self, total: u64, least: u64) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Absolute(n) => Some(n),
            // The small addition keeps a third of 3 from being 0.
            Self::Share(share) => Some(((total as f64 * share + 1e-6).floor() as u64).max(least)),
        }
    }
}

/// Cuts the machine; a slot that does not fit is left out and reported.
fn cut(wanted: &[Wanted], total: Resources, report: impl Fn(&str, String) -> Diagnostic) -> Layout {
    /// One resource: how to read the wish, write the result, the total, and the least that a slot needs of it.
    type Column = (fn(&Wish) -> Amount, fn(&mut Resources) -> &mut u64, u64, u64, &'static str);
    let columns: [Column; 5] = [
        (|w| w.cpus, |r| &mut r.cpus, total.cpus, 1, "cpus"),
        (|w| w.memory, |r| &mut r.memory_mib, total.memory_mib, 1, "MiB of memory"),
        (|w| w.disk, |r| &mut r.disk_kib, total.disk_kib, 0, "KiB of disk"),
        (|w| w.swap, |r| &mut r.swap_kib, total.swap_kib, 0, "KiB of swap"),
        (|w| w.gpus, |r| &mut r.gpus, total.gpus, 0, "gpus"),
    ];
    let mut layout = Layout::default();
    let mut left = total;
    let mut accepted: Vec<(&Wanted, Resources)> = Vec::new();
    'slots: for slot in wanted {
        let Wanted { name, wish, .. } = slot;
        let mut mine = Resources::default();
        let mut after = left;
        for (read, write, total, least, what) in columns {
            // A share of the rest still needs the least that a slot can live on.
            let need = read(wish).fixed(total, least).unwrap_or(least);
            let rest = write(&mut after);
            let Some(remaining) = rest.checked_sub(need) else {
                let have = *rest;
                let message = format!("{name} asks for {need} {what}, but only {have} are left");
                layout.warnings.push(report(name, message));
                continue 'slots;
            };
            *rest = remaining;
            *write(&mut mine) = need;
        }
        left = after;
        accepted.push((slot, mine));
    }
    for (read, write, ..) in columns {
        let sharers = accepted.iter().filter(|(w, _)| read(&w.wish) == Amount::Auto).count() as u64;
        let rest = *write(&mut left);
        let mut position = 0;
        for (slot, mine) in &mut accepted {
            if read(&slot.wish) == Amount::Auto {
                // The first slots take what does not divide evenly.
                *write(mine) += rest / sharers + u64::from(position < rest % sharers);
                position += 1;
            }
        }
    }
    let wishes = |read: fn(&Wish) -> Amount| accepted.iter().map(|(w, _)| read(&w.wish)).collect::<Vec<_>>();
    let (disk, swap) = (shares(&wishes(|w| w.disk)), shares(&wishes(|w| w.swap)));
    let plans = accepted.into_iter().zip(1..).zip(disk.into_iter().zip(swap));
    layout.plans = plans
        .map(|(((slot, resources), n), (disk, swap))| Plan {
            id: SlotId::new(n),
            kind: slot.kind,
            resources,
            disk,
            swap,
            of_type: slot.of_type,
        })
        .collect();
    layout
}

/// What each slot has of something that changes; those that do not say share what the others leave.
fn shares(wishes: &[Amount]) -> Vec<Share> {
    let named = |wish: &Amount| match wish {
        Amount::Share(part) => Some(*part),
        Amount::Auto | Amount::Absolute(_) => None,
    };
    let left = 1.0 - wishes.iter().filter_map(named).fold(0.0, |sum, part| sum + part);
    let sharers = wishes.iter().filter(|w| named(w).is_none()).count().max(1);
    wishes.iter().map(|w| Share::new(named(w).unwrap_or(left / sharers as f64))).collect()
}

/// Gives the load that is not ours to the slots one by one, up to 1.0 each, idle slots first; what is left over goes
/// to the first.
pub fn share_owner_load(load: f64, in_use: &[bool]) -> Vec<f64> {
    let mut shares = vec![0.0; in_use.len()];
    let mut left = load.max(0.0);
    for turn in [false, true] {
        for (share, _) in shares.iter_mut().zip(in_use).filter(|(_, used)| **used == turn) {
            *share = left.min(1.0);
            left -= *share;
        }
    }
    if let Some(first) = shares.first_mut() {
        *first += left;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: Resources =
        Resources { cpus: 8, memory_mib: 16_000, disk_kib: 1_000_000, swap_kib: 4_000, gpus: 1 };

    fn lay(types: &[(&str, usize)]) -> Layout {
        let wanted: Vec<_> = types
            .iter()
            .flat_map(|(text, n)| {
                let wish = parse(text).unwrap();
                vec![Wanted { name: "T".into(), wish, kind: SlotKind::Static, of_type: None }; *n]
            })
            .collect();
        cut(&wanted, TOTAL, |_, message| Diagnostic::warning(message))
    }

    #[test]
    fn shares_lists_and_auto_divide_the_machine() {
        let layout = lay(&[("1/4", 2), ("cpus=2, ram=4000, disk=10%", 1), ("auto", 2)]);
        let cpus: Vec<u64> = layout.plans.iter().map(|p| p.resources.cpus).collect();
        assert_eq!(cpus, [2, 2, 2, 1, 1]);
        let memory: Vec<u64> = layout.plans.iter().map(|p| p.resources.memory_mib).collect();
        assert_eq!(memory, [4000, 4000, 4000, 2000, 2000]);
        assert_eq!(layout.plans[2].resources.disk_kib, 100_000);
        // However much it is later.
        let disk: Vec<u64> = layout.plans.iter().map(|p| p.disk.of(2_000)).collect();
        assert_eq!(disk, [500, 500, 200, 400, 400]);
        assert!(layout.warnings.is_empty());
    }

    #[test]
    fn a_surplus_slot_is_left_out_and_reported() {
        let layout = lay(&[("50%", 3)]);
        assert_eq!(layout.plans.len(), 2);
        assert_eq!(layout.warnings.len(), 1);
        assert!(layout.warnings[0].message.contains("only 0 are left"), "{}", layout.warnings[0].message);
        assert_eq!(lay(&[("auto", 9)]).plans.len(), 8, "a slot needs a core");
    }

    #[test]
    fn wrong_amounts_are_refused() {
        for text in ["4", "cpus=x", "1/0", "0%", "101%", "disk=500", "x=1", "cpus=-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("").unwrap(), parse("auto").unwrap());
    }

    #[test]
    fn the_owners_load_goes_to_idle_slots_first() {
        assert_eq!(share_owner_load(1.5, &[true, false, false]), [0.0, 1.0, 0.5]);
        assert_eq!(share_owner_load(2.5, &[true, false]), [1.5, 1.0]);
        assert_eq!(share_owner_load(3.0, &[false]), [3.0]);
    }
}
