//! The monitor for callers who would rather ask than be called: changes come out of a channel, each to be acknowledged.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};

use super::shell::Shared;
use super::{Change, Listener, Monitor, Reply, Settings, StartError};

/// A change that waits to be acknowledged. The next one of its key comes after that; one that is dropped without is told
/// again, later.
#[derive(Debug)]
pub struct Delivery {
    /// What happened.
    pub change: Change,
    monitor: Weak<Shared>,
    is_open: bool,
}

impl Delivery {
    /// Says that it is handled; true when that is on disk. False when the monitor is gone or its id was unregistered.
    pub fn acknowledge(mut self) -> bool {
        self.is_open = false;
        self.monitor
            .upgrade()
            .is_some_and(|monitor| monitor.acknowledge(&[self.change.number]).were_open == [true])
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.is_open
            && let Some(monitor) = self.monitor.upgrade()
        {
            monitor.refuse(self.change.number);
        }
    }
}

struct Sending {
    sender: Mutex<Sender<Delivery>>,
    monitor: Arc<Mutex<Weak<Shared>>>,
}

impl Listener for Sending {
    fn job_changed(&self, change: &Change) -> Result<Reply, String> {
        let lost = |_| "a thread of the monitor panicked".to_owned();
        let monitor = self.monitor.lock().map_err(|e| lost(e.to_string()))?.clone();
        let delivery = Delivery { change: change.clone(), monitor, is_open: true };
        // A channel nobody reads holds one change of each key: it cannot grow beyond that.
        let sender = self.sender.lock().map_err(|e| lost(e.to_string()))?;
        sender.send(delivery).map(|()| Reply::Later).map_err(|refused| {
            let mut delivery = refused.0;
            delivery.is_open = false;
            "nobody reads the channel".to_owned()
        })
    }
}

impl Monitor {
    /// Starts a monitor whose changes are read from a channel.
    pub fn start_with_channel(settings: Settings) -> Result<(Self, Receiver<Delivery>), StartError> {
        let (sender, receiver) = channel();
        let place = Arc::new(Mutex::new(Weak::new()));
        let listener = Sending { sender: Mutex::new(sender), monitor: place.clone() };
        let monitor = Self::start(settings, Arc::new(listener))?;
        if let Ok(mut place) = place.lock() {
            *place = Arc::downgrade(monitor.shared());
        }
        Ok((monitor, receiver))
    }
}
