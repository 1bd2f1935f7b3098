//! Which pass of a doubled hour the lines of a log mean.
//!
//! Local times of that hour have two meanings, and nothing in a line says which. So such lines are held until more is known:
//! until a line comes whose time is sure, or until nothing more is to be had now ([`Order::settle`]). Then the meanings are
//! chosen that need the fewest steps back, as the lines of a log are in order but for little. What is known besides goes
//! before the order: what an earlier generator took a line for ([`Keep`]), and when the file was written. Where all that leaves both
//! open, lines that are wanted by one of their meanings get that one, the others the first, and it is said.
//!
//! The order belongs to a log, not to a file: the next file of a log goes on with it ([`Order::go_on`]).

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::TimeZone;

use super::clock::{Civil, Clock};

/// Lines are not in strict order: several writers, and clocks that are set a little. A step back of so many seconds is as likely
/// as that the other pass has begun.
const STEP: u64 = 300;
/// What a longer step back costs, beside its seconds.
const FAR: u64 = 1 << 20;
/// What a meaning costs that the time of the writing speaks against, one that the line itself rules out, and one that is known to be
/// wrong.
const IMPLAUSIBLE: u64 = FAR << 2;
const IMPOSSIBLE: u64 = FAR << 10;
const WRONG: u64 = FAR << 20;
/// So many lines are held at most. A busy server writes a few hundred thousand an hour.
const HELD: usize = 1 << 20;

/// A stretch of a text whose lines of a doubled hour are all of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where its first line begins.
    pub start: u64,
    /// Where its last line begins.
    pub last: u64,
    /// Which pass it is.
    pub is_second: bool,
}

/// Remembers what lines were taken for, across generators: whoever removes repetitions by the time of an event needs the same
/// time again.
pub trait Keep: std::fmt::Debug + Send {
    /// What is known of a text that begins so.
    fn known(&self, head: &[u8]) -> Vec<Run>;
    /// Remembers a stretch of the text that begins so; `stamp` is the time of its last line. On disk before it is told. Returns
    /// what a person should know.
    fn keep(&mut self, head: &[u8], run: Run, stamp: i64) -> Option<String>;
}

/// Shared by the parsers of all files.
pub type Memory = Arc<Mutex<dyn Keep>>;

/// When a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// At this second.
    At(i64),
    /// The line of this number is held.
    Held(u64),
}

/// Where the log of another parser has come to.
#[derive(Clone)]
pub struct Reached {
    passes: Rc<dyn Any>,
    until: Option<i64>,
}

#[derive(Debug)]
struct Line<T> {
    number: u64,
    /// What its time means in either pass.
    stamps: [i64; 2],
    /// What speaks against either.
    against: [u64; 2],
    place: u64,
    head: Option<Rc<[u8]>>,
    until: Option<i64>,
    told: Option<T>,
}

/// The lines of a log.
#[derive(Debug)]
struct Passes<T> {
    clock: Clock,
    from: i64,
    memory: Option<Memory>,
    reached: Option<i64>,
    /// Of which pass the last line was, if it was of a doubled hour.
    inside: Option<usize>,
    held: VecDeque<Line<T>>,
    /// The line that was decided last.
    last: Option<(u64, i64)>,
    count: u64,
    ready: Vec<(i64, T)>,
    notes: Vec<String>,
}

/// What is told of a line that was held, and what is to be said beside it.
pub type Ready<T> = (Vec<(i64, T)>, Vec<String>);

/// The order of one file's lines among those of its log.
#[derive(Debug)]
pub struct Order<T> {
    passes: Rc<RefCell<Passes<T>>>,
    /// When the file before was written last.
    before: Option<i64>,
    /// When the lines that come next were written.
    since: Option<i64>,
    until: Option<i64>,
    place: u64,
    head: Option<Rc<[u8]>>,
    known: Vec<Run>,
}

impl<T: std::fmt::Debug + 'static> Order<T> {
    /// A log of a host in this zone. Events are wanted from `from` on.
    pub fn new(zone: TimeZone, from: i64) -> Self {
        let passes = Passes {
            clock: Clock::new(zone),
            from,
            memory: None,
            reached: None,
            inside: None,
            held: VecDeque::new(),
            last: None,
            count: 0,
            ready: Vec::new(),
            notes: Vec::new(),
        };
        let passes = Rc::new(RefCell::new(passes));
        Self { passes, before: None, since: None, until: None, place: 0, head: None, known: Vec::new() }
    }

    /// What lines are taken for is remembered there.
    pub fn remember_in(&mut self, memory: Memory) {
        self.passes.borrow_mut().memory = Some(memory);
    }

    /// The time of the next line. What was held may be ready after that.
    pub fn line(&mut self, civil: Civil) -> Option<Moment> {
        self.line_after(civil, i64::MIN)
    }

    /// The same of a line that tells of something that was not before `least`.
    pub fn line_after(&mut self, civil: Civil, least: i64) -> Option<Moment> {
        let mut passes = self.passes.borrow_mut();
        let (first, second) = passes.clock.candidates(civil)?;
        let Some(second) = second else {
            if !passes.held.is_empty() {
                passes.decide(Some(first));
            }
            (passes.reached, passes.inside) = (Some(first), None);
            return Some(Moment::At(first));
        };
        passes.count += 1;
        let number = passes.count;
        let stamps = [first, second];
        let mut against = implausible(stamps, self.since, self.until);
        if let Some(run) = self.known.iter().rev().find(|run| (run.start..=run.last).contains(&self.place)) {
            against[usize::from(!run.is_second)] += WRONG;
        }
        if first < least && least <= second {
            against[0] += IMPOSSIBLE;
        }
        let (head, place, until) = (self.head.clone(), self.place, self.until);
        passes.held.push_back(Line { number, stamps, against, place, head, until, told: None });
        if passes.held.len() > HELD {
            passes.decide(None);
        }
        Some(Moment::Held(number))
    }

    /// Something that happened at this moment; returns it if that is known, else it is held.
    pub fn tell(&mut self, moment: Moment, told: T) -> Option<(i64, T)> {
        let mut passes = self.passes.borrow_mut();
        match moment {
            Moment::At(stamp) => Some((stamp, told)),
            Moment::Held(number) => match passes.held.iter_mut().rev().find(|line| line.number == number) {
                Some(line) => {
                    line.told = Some(told);
                    None
                }
                None => passes.last.filter(|last| last.0 == number).map(|last| (last.1, told)),
            },
        }
    }

    /// Is anything ready to be told?
    pub fn is_ready(&self) -> bool {
        let passes = self.passes.borrow();
        !passes.ready.is_empty() || !passes.notes.is_empty()
    }

    /// What was held and is known by now.
    pub fn take_ready(&mut self) -> Ready<T> {
        let mut passes = self.passes.borrow_mut();
        (std::mem::take(&mut passes.ready), std::mem::take(&mut passes.notes))
    }

    /// Nothing more is to be had now: what is held is decided.
    pub fn settle(&mut self) {
        let mut passes = self.passes.borrow_mut();
        if let Some(line) = passes.held.back_mut() {
            // The file was written last when its last line was.
            let late = implausible(line.stamps, line.until, line.until);
            line.against = [0, 1].map(|pass| line.against[pass] + late[pass]);
            passes.decide(None);
        }
    }
}

/// What is told of a file to the order of its log, whatever waits there for its time.
pub trait InOrder {
    /// The text begins so.
    fn begins(&mut self, head: &[u8]);
    /// The next line begins at this byte.
    fn at(&mut self, place: u64);
    /// What comes next was written after `since`, if that is known, and not after `until`.
    fn written(&mut self, since: Option<i64>, until: i64);
    /// Where the log has come to, for the next file.
    fn reached(&self) -> Option<Reached>;
    /// Goes on where another file of the log ended.
    fn go_on(&mut self, reached: Option<Reached>);
}

impl<T: std::fmt::Debug + 'static> InOrder for Order<T> {
    fn begins(&mut self, head: &[u8]) {
        let passes = self.passes.borrow();
        if let Some(memory) = &passes.memory
            && self.head.as_deref() != Some(head)
        {
            self.known = memory.lock().unwrap_or_else(PoisonError::into_inner).known(head);
            self.head = Some(head.into());
        }
    }

    fn at(&mut self, place: u64) {
        self.place = place;
    }

    fn written(&mut self, since: Option<i64>, until: i64) {
        self.since = since.or(self.before);
        self.until = Some(until);
    }

    fn reached(&self) -> Option<Reached> {
        let passes = self.passes.borrow();
        let is_begun = passes.reached.is_some() || !passes.held.is_empty();
        is_begun.then(|| Reached { passes: Rc::<RefCell<Passes<T>>>::clone(&self.passes), until: self.until })
    }

    fn go_on(&mut self, reached: Option<Reached>) {
        let Some(Reached { passes, until }) = reached else { return };
        if let Ok(passes) = passes.downcast::<RefCell<Passes<T>>>() {
            self.passes = passes;
            self.before = until;
        }
    }
}

/// What the time of the writing has against either meaning: one is far from it, and the other is not.
fn implausible(stamps: [i64; 2], since: Option<i64>, until: Option<i64>) -> [u64; 2] {
    let shift = stamps[1] - stamps[0];
    let is_plausible = |stamp: i64| {
        since.is_none_or(|since| stamp >= since.saturating_sub(shift / 2))
            && until.is_none_or(|until| stamp <= until.saturating_add((shift / 4).min(300)))
    };
    match stamps.map(is_plausible) {
        [true, false] => [0, IMPLAUSIBLE],
        [false, true] => [IMPLAUSIBLE, 0],
        _ => [0, 0],
    }
}

/// What speaks against a choice: steps back, and then what is not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Cost(u64, u64);

impl std::ops::Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0, self.1 + other.1)
    }
}

/// From one second to the next one of a log.
fn step(from: i64, to: i64) -> Cost {
    let back = from.saturating_sub(to).max(0) as u64;
    Cost(back + if back > STEP { FAR } else { 0 }, 0)
}

impl<T> Line<T> {
    /// This meaning after that of the line before.
    fn cost(&self, pass: usize, before: Option<(&Self, usize)>, from: i64) -> Cost {
        // Wanted by its second meaning only: it is not to be lost.
        let is_late = self.stamps[0] < from && self.stamps[1] >= from;
        let cost = Cost(self.against[pass], u64::from(is_late == (pass == 0)));
        match before {
            Some((line, other)) => {
                let change = if pass > other { STEP } else { 0 };
                cost + step(line.stamps[other], self.stamps[pass]) + Cost(change, 0)
            }
            None => cost,
        }
    }
}

impl<T> Passes<T> {
    /// Decides all that is held; `next` is the time of the line behind it, if there is one.
    fn decide(&mut self, next: Option<i64>) {
        let lines: Vec<Line<T>> = std::mem::take(&mut self.held).into();
        let from = self.from;
        let enter = |line: &Line<T>, pass: usize| {
            let change = if pass == 1 && self.inside == Some(0) { STEP } else { 0 };
            let reached = self.reached.map_or(Cost::default(), |reached| step(reached, line.stamps[pass]));
            line.cost(pass, None, from) + reached + Cost(change, 0)
        };
        // What each meaning costs from there on, and up to there.
        let mut behind = vec![[Cost::default(); 2]; lines.len()];
        for at in (0..lines.len()).rev() {
            behind[at] = [0, 1].map(|pass| match lines.get(at + 1) {
                Some(line) => {
                    let to = |to: usize| line.cost(to, Some((&lines[at], pass)), from) + behind[at + 1][to];
                    to(0).min(to(1))
                }
                None => next.map_or(Cost::default(), |next| step(lines[at].stamps[pass], next)),
            });
        }
        let mut ahead: Vec<[Cost; 2]> = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().enumerate() {
            ahead.push([0, 1].map(|pass| match at.checked_sub(1) {
                Some(before) => {
                    let of =
                        |of: usize| ahead[before][of] + line.cost(pass, Some((&lines[before], of)), from);
                    of(0).min(of(1))
                }
                None => enter(line, pass),
            }));
        }
        let mut choices: Vec<usize> = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().enumerate() {
            let total = |pass: usize| {
                let to_here = match at.checked_sub(1) {
                    Some(before) => line.cost(pass, Some((&lines[before], choices[before])), from),
                    None => enter(line, pass),
                };
                to_here + behind[at][pass]
            };
            choices.push(usize::from(total(1) < total(0)));
        }
        let is_open = |at: usize| {
            let [first, second] = [0, 1].map(|pass| (ahead[at][pass] + behind[at][pass]).0);
            first.abs_diff(second) <= STEP
        };
        self.keep(&lines, &choices);
        let open: Vec<usize> = (0..lines.len())
            .filter(|at| lines[*at].told.is_some() && lines[*at].stamps[1] >= from && is_open(*at))
            .collect();
        self.say_open(&lines, &choices, &open);
        for (line, pass) in lines.into_iter().zip(choices) {
            let stamp = line.stamps[pass];
            (self.reached, self.inside) = (Some(stamp), Some(pass));
            self.last = Some((line.number, stamp));
            self.ready.extend(line.told.map(|told| (stamp, told)));
        }
    }

    /// Remembers what the lines are taken for, if they are wanted: what was never told may be taken for anything yet.
    fn keep(&mut self, lines: &[Line<T>], choices: &[usize]) {
        let Some(memory) = self.memory.clone() else { return };
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        while at < lines.len() {
            let is_wanted = |at: usize| lines[at].stamps[choices[at]] >= self.from;
            let is_same = |other: &usize| {
                choices[*other] == choices[at]
                    && is_wanted(*other) == is_wanted(at)
                    && lines[*other].head == lines[at].head
                    && lines[*other].place >= lines[at].place
            };
            let end = (at..lines.len()).take_while(is_same).last().unwrap_or(at);
            let (first, last) = (&lines[at], &lines[end]);
            if let Some(head) = first.head.as_ref().filter(|_| is_wanted(at)) {
                let is_second = choices[at] == 1;
                let run = Run { start: first.place, last: last.place, is_second };
                self.notes.extend(memory.keep(head, run, last.stamps[choices[at]]));
            }
            at = end + 1;
        }
    }

    /// Says of which events nobody knows when they were.
    fn say_open(&mut self, lines: &[Line<T>], choices: &[usize], open: &[usize]) {
        let (Some(first), Some(last)) = (open.first(), open.last()) else { return };
        let time = |at: usize| self.clock.local(lines[at].stamps[0]);
        if open.len() == 1 {
            let pass = if choices[*first] == 1 { "second" } else { "first" };
            self.notes.push(format!(
                "an event at {} is of an hour that came twice, and nothing says which: it is taken for one of the {pass}",
                time(*first)
            ));
            return;
        }
        let seconds = open.iter().filter(|at| choices[**at] == 1).count();
        let taken = match seconds {
            0 => "they are taken for those of the first".to_owned(),
            _ if seconds == open.len() => "they are taken for those of the second".to_owned(),
            _ => {
                let firsts = open.len() - seconds;
                format!("{firsts} are taken for those of the first, {seconds} for those of the second")
            }
        };
        self.notes.push(format!(
            "{} events from {} to {} are of an hour that came twice, and nothing says which: {taken}",
            open.len(),
            time(*first),
            time(*last)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seg::clock::iso;

    /// One o'clock of 3 November 2024 in New York, the first time.
    const FIRST: i64 = 1_730_610_000;

    fn order() -> Order<()> {
        Order::new(TimeZone::get("America/New_York").unwrap(), 1)
    }

    /// Lines with these times; the seconds since the hour of what is known after them, and the notes.
    fn hear(order: &mut Order<()>, times: &[&str]) -> (Vec<i64>, Vec<String>) {
        let (mut told, mut notes) = (Vec::new(), Vec::new());
        for time in times {
            let moment = order.line(iso(format!("2024-11-03T{time}").as_bytes()).unwrap()).unwrap();
            let (ready, said) = order.take_ready();
            told.extend(ready);
            notes.extend(said);
            told.extend(order.tell(moment, ()));
        }
        (told.iter().map(|(stamp, ())| stamp - FIRST).collect(), notes)
    }

    fn hear_all(times: &[&str]) -> (Vec<i64>, Vec<String>) {
        let mut order = order();
        let (mut told, mut notes) = hear(&mut order, times);
        order.settle();
        let (ready, said) = order.take_ready();
        told.extend(ready.iter().map(|(stamp, ())| stamp - FIRST));
        notes.extend(said);
        (told, notes)
    }

    #[test]
    fn lines_that_come_late_are_of_the_pass_of_their_time() {
        let (told, notes) =
            hear_all(&["00:59:00", "01:10:00", "01:12:00", "01:10:30", "01:13:00", "01:59:50"]);
        assert_eq!(told, [-60, 600, 720, 630, 780, 3_590]);
        assert_eq!(notes.len(), 1, "the second pass is not there: {notes:?}");
        // A line of the end of the first pass, at the beginning of the second.
        let times = ["01:59:50", "01:00:01", "01:59:59", "01:00:02", "02:00:00"];
        assert_eq!(hear_all(&times), (vec![3_590, 3_601, 3_599, 3_602, 7_200], vec![]));
        // Further back than lines come late.
        let times = ["00:59:00", "01:30:00", "01:23:20", "02:00:00"];
        assert_eq!(hear_all(&times), (vec![-60, 1_800, 5_000, 7_200], vec![]));
        // A clock that was set back, and the second pass later.
        let times = ["01:30:00", "01:20:00", "01:40:00", "01:59:00", "01:00:00", "02:00:00"];
        assert_eq!(hear_all(&times).0, [1_800, 1_200, 2_400, 3_540, 3_600, 7_200]);
    }

    #[test]
    fn what_is_decided_is_not_decided_again_and_little_steps_begin_nothing() {
        let mut order = order();
        let mut at = |time: &str| {
            assert_eq!(hear(&mut order, &[time]).0, [0_i64; 0]);
            order.settle();
            order.take_ready().0[0].0 - FIRST
        };
        assert_eq!(at("01:30:00"), 1_800);
        assert_eq!(at("01:25:00"), 1_500);
        assert_eq!(at("01:19:59"), 1_199 + 3_600);
        assert_eq!(at("01:59:59"), 7_199);
    }

    #[test]
    fn an_event_whose_line_was_decided_meanwhile_gets_its_time() {
        let mut order = order();
        let moment = order.line(iso(b"2024-11-03T01:10:00").unwrap()).unwrap();
        order.settle();
        assert_eq!(order.tell(moment, ()), Some((FIRST + 600, ())));
        assert_eq!(order.tell(Moment::Held(99), ()), None);
    }

    #[test]
    fn what_ended_after_it_began_is_of_the_second_pass() {
        let at = |time: &str, least: i64| {
            let mut order = order();
            order.line_after(iso(format!("2024-11-03T{time}").as_bytes()).unwrap(), FIRST + least);
            order.settle();
            order.passes.borrow().reached.unwrap() - FIRST
        };
        assert_eq!(at("01:10:00", 600), 600);
        assert_eq!(at("01:10:00", 601), 4_200);
        assert_eq!(at("01:10:00", 4_200), 4_200);
        // Neither can be: that says nothing.
        assert_eq!(at("01:10:00", 4_201), 600);
    }

    #[test]
    fn what_open_lines_were_taken_for_is_said() {
        let said = |from: i64, times: &[&str]| {
            let mut order = Order::new(TimeZone::get("America/New_York").unwrap(), from);
            hear(&mut order, times);
            order.settle();
            order.take_ready().1.join("")
        };
        let times = ["01:10:00", "01:20:00"];
        assert!(said(1, &times).ends_with("they are taken for those of the first"), "{}", said(1, &times));
        let late = said(FIRST + 3_600, &times);
        assert!(late.ends_with("they are taken for those of the second"), "{late}");
    }

    #[test]
    fn the_next_file_was_written_after_the_one_before() {
        let mut before = order();
        before.written(None, FIRST + 4_000);
        assert_eq!(hear(&mut before, &["00:50:00"]).0, [-600]);
        let mut next = order();
        next.go_on(None);
        assert!(next.reached().is_none());
        next.go_on(before.reached());
        next.written(None, FIRST + 4_850);
        hear(&mut next, &["01:10:00", "01:20:00"]);
        next.settle();
        let (ready, notes) = next.take_ready();
        assert_eq!(ready, [(FIRST + 4_200, ()), (FIRST + 4_800, ())]);
        assert_eq!(notes, [""; 0]);
        // What was written years later says nothing.
        assert_eq!(implausible([FIRST, FIRST + 3_600], Some(FIRST + 90_000), Some(FIRST + 90_000)), [0, 0]);
    }
}
