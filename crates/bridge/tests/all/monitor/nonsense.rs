//! Random words: nothing that a generator, or a client of the fork starter, says makes anything panic.

use bridge::forkstarter::task::{Request, read_request};
use bridge::monitor::core::{Core, Outcome};
use bridge::monitor::line::{Cutter, Line, read_line};
use bridge::monitor::spool::NoSpool;
use bridge::monitor::{Limits, Registering};
use bridge::seg::{Event, State};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn whatever_a_generator_or_a_client_of_the_starter_says_nothing_panics_and_true_events_are_read_back() {
    let mut random = Random(7);
    let pieces: [&[u8]; 16] = [
        b"001;",
        b"100;",
        b"a",
        b";",
        b"\n",
        b"12",
        b"-",
        b"8",
        b"=",
        b"\\",
        b",",
        b"count=1",
        b"executable=x",
        b"\0",
        b"\xff",
        b"stdout=/o",
    ];
    let limits = Limits { cache_events: 50, queue_events: 20, ..Limits::default() };
    let mut core = Core::new(limits, 1, Box::new(NoSpool));
    for round in 0..2_000u64 {
        let mut text = Vec::new();
        for _ in 0..random.below(60) {
            text.extend_from_slice(pieces[random.below(16) as usize]);
        }
        let state = State::from_number(1 << random.below(8)).unwrap();
        let code = if matches!(state, State::Failed | State::Done) { round as i32 - 1_000 } else { 0 };
        let id = format!("job{}", random.below(9));
        let true_event = Event { stamp: round as i64 - 5, id: id.as_bytes(), state, code };
        text.push(b'\n');
        true_event.write_line(&mut text);
        if round % 50 == 0 {
            core.begin_round();
        }
        let mut last = None;
        Cutter::default().feed(&text, &mut |line| {
            if let Line::Event(event) = read_line(line) {
                core.take_event(round, &event);
                last = Some((event.stamp, event.id.to_vec(), event.state, event.code));
            }
        });
        assert_eq!(last, Some((true_event.stamp, id.clone().into_bytes(), state, code)));
        match random.below(4) {
            0 => drop(core.register(round, &[id.as_bytes()], &id.as_str().into(), &Registering::default())),
            1 => drop(core.unregister(id.as_bytes())),
            _ => {}
        }
        while let Some(delivery) = core.next_delivery(round * 100_000) {
            let outcome = [Outcome::Handled, Outcome::Later, Outcome::Failed][random.below(3) as usize];
            core.finish_call(round * 100_000, &delivery, outcome);
            core.acknowledge(delivery.change.number);
        }
        core.tick(round, i64::MAX);
        for line in text.split(|b| *b == b'\n') {
            if let Request::Start(_, task) = read_request(line) {
                assert!(task.count == task.stdout.len() && task.count == task.stderr.len() && task.count > 0);
            }
        }
    }
    assert!(core.held().cached <= 50);
}
