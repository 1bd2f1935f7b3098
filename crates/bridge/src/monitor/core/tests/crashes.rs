//! Random worlds: a log of random jobs, generators that die, monitors that crash, listeners that fail. Whatever happens,
//! each job's events arrive in the log's order, none is missing, and none that was handled comes again.

use super::*;
use crate::monitor::datum::handled_events;

/// A small generator of random numbers, so that a failing world can be played again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

type Line = (i64, usize, i32, i32);

/// A log whose stamps stand still, go on and, if `is_disordered`, step back.
fn write_log(dice: &mut Dice, jobs: usize, lines: usize) -> Vec<Line> {
    let mut stamp = 1_000;
    let mut log = Vec::new();
    for _ in 0..lines {
        stamp += i64::from(dice.below(4) == 0);
        let state = [1, 2, 16, 8][dice.below(4) as usize];
        let code = if state == 8 { dice.below(2) as i32 } else { 0 };
        log.push((stamp, dice.below(jobs as u64) as usize, state, code));
    }
    log
}

/// What survives a crash.
#[derive(Default)]
struct Disk {
    datum: i64,
    handled: Vec<u8>,
}

fn play(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let jobs = 6;
    let registered = 4;
    let log = write_log(&mut dice, jobs, 300);
    let mut heard: BTreeMap<usize, Vec<Line>> = BTreeMap::new();
    let mut disk = Disk { datum: 1, ..Disk::default() };
    let mut lives = 0;
    loop {
        lives += 1;
        let is_last = lives > 8;
        if live(&mut dice, &log, registered, &mut disk, &mut heard, is_last) {
            break;
        }
    }
    for job in 0..registered {
        let wanted: Vec<_> = log.iter().filter(|line| line.1 == job).copied().collect();
        assert_eq!(heard.get(&job).cloned().unwrap_or_default(), wanted, "job {job} of seed {seed}");
    }
}

/// One life of a monitor; true when it came to the end of the log with everything handled.
fn live(
    dice: &mut Dice,
    log: &[Line],
    registered: usize,
    disk: &mut Disk,
    heard: &mut BTreeMap<usize, Vec<Line>>,
    is_last: bool,
) -> bool {
    let limits = Limits { raw: true, queue_events: 8, discard_ms: 1_000_000, ..Limits::default() };
    let mut core = Core::new(limits, disk.datum, Box::new(NoSpool));
    let mut bad = 0;
    for event in handled_events(&disk.handled.clone(), disk.datum, &mut bad) {
        core.remember_handled(&event);
    }
    core.begin_round();
    let mut now = 0;
    let mut unregistered: Vec<usize> = (0..registered).collect();
    let mut log_at = log.iter().position(|line| line.0 >= disk.datum).unwrap_or(log.len());
    let mut open = Vec::new();
    loop {
        now += 10;
        match dice.below(12) {
            0..=5 if log_at < log.len() => {
                let (stamp, job, state, code) = log[log_at];
                let id = format!("job{job}");
                let state = State::from_number(state).unwrap();
                core.take_event(now, &Event { stamp, id: id.as_bytes(), state, code });
                log_at += 1;
            }
            6 if !unregistered.is_empty() => {
                let job = unregistered.swap_remove(dice.below(unregistered.len() as u64) as usize);
                let id = format!("job{job}");
                // Two jobs share a key.
                core.register(now, &[id.as_bytes()], &key(&format!("{}", job / 2)), &Registering::default())
                    .unwrap();
            }
            7..=9 => {
                if let Some(delivery) = core.next_delivery(now) {
                    open.push(delivery);
                }
            }
            10 if dice.below(8) == 0 && !is_last => {
                // The generator dies and is started where the datum is.
                core.begin_round();
                let datum = core.datum(FOREVER);
                log_at = log.iter().position(|line| line.0 >= datum).unwrap_or(log.len());
            }
            11 if dice.below(40) == 0 && !is_last => {
                // The monitor is killed: calls under way count for nothing.
                core.tick(now, FOREVER);
                disk.datum = core.datum(FOREVER);
                core.fetch_handled(&mut disk.handled);
                return false;
            }
            _ => {
                if !open.is_empty() {
                    let delivery = open.swap_remove(dice.below(open.len() as u64) as usize);
                    let has_failed = dice.below(5) == 0;
                    if !has_failed {
                        let id = std::str::from_utf8(&delivery.change.id).unwrap();
                        let job: usize = id.strip_prefix("job").unwrap().parse().unwrap();
                        let change = &delivery.change;
                        let line = (change.stamp, job, change.state.number(), change.code);
                        heard.entry(job).or_default().push(line);
                    }
                    let outcome = if has_failed { Outcome::Failed } else { Outcome::Handled };
                    core.finish_call(now, &delivery, outcome);
                    if dice.below(3) == 0 {
                        core.tick(now, FOREVER);
                        disk.datum = core.datum(FOREVER);
                        core.fetch_handled(&mut disk.handled);
                    }
                }
            }
        }
        let held = core.held();
        if log_at == log.len() && unregistered.is_empty() && open.is_empty() && held.undelivered == 0 {
            return true;
        }
    }
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order_whatever_dies() {
    for seed in 1..200 {
        play(seed);
    }
}
