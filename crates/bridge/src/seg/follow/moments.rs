//! The moments of a look: one before everything that it asks of the file system. Between two of them whoever writes and rotates
//! may do anything. The tests do it exactly there, so that a world in which a look goes wrong can be had again.

#[cfg(not(test))]
pub(super) fn pass() {}

#[cfg(test)]
pub(super) use tests::pass;

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    type Others = Box<dyn FnMut()>;

    thread_local! {
        static OTHERS: RefCell<Option<Others>> = const { RefCell::new(None) };
    }

    /// A moment passes: the others act, if it is theirs.
    pub(in super::super) fn pass() {
        if let Some(mut others) = OTHERS.take() {
            others();
            OTHERS.set(Some(others));
        }
    }

    /// From now on these act at every moment of this thread.
    pub(in super::super) fn let_act(others: impl FnMut() + 'static) {
        OTHERS.set(Some(Box::new(others)));
    }

    /// Nobody acts any more.
    pub(in super::super) fn let_rest() {
        OTHERS.set(None);
    }
}
