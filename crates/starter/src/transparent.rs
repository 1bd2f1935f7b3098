//! Checkpoints of jobs that do not know of them: CRIU's images, the scratch directory and the sizes of the files that
//! were being written, in one archive; and the way back.
//!
//! The processes live in a `nest`, which does the saving. Here is what it takes to keep what was saved, and when that is
//! asked for; the rest is the same as for every checkpoint (`checkpoint`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::report::{Attempt, CannotStart, Happening, Started};
use prost::Message;

use crate::archive;
use crate::as_user;
use crate::nest::{self, Dumped, Failed, Nest, Word, Written};
use crate::run::Starter;
use crate::running::Running;
use crate::sys;
use crate::wire::Job;

/// CRIU's images, and the job's scratch directory, in the archive.
const IMAGES: &str = "images";
const SCRATCH: &str = "scratch";
/// Among the images: what else must be as it was.
const MANIFEST: &str = "updraft.manifest";

/// What else must be as it was.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Manifest {
    /// The files that were open for writing.
    #[prost(message, repeated, tag = "1")]
    files: Vec<Written>,
    /// Whose processes they are, by number, as CRIU has it: the same name may have another one elsewhere.
    #[prost(uint32, tag = "2")]
    uid: u32,
}

fn uid_of(job: &Job) -> u32 {
    job.identity.as_ref().map_or_else(sys::own_uid, |i| i.uid)
}

impl Starter<'_> {
    fn images(&self) -> PathBuf {
        self.dir.join(IMAGES)
    }

    /// Removes images that nobody needs any more.
    pub(crate) fn forget_images(&self) {
        let _ = fs::remove_dir_all(self.images());
    }

    /// Starts a job in a nest, from its checkpoint when it has one.
    pub(crate) fn start_nested(&mut self, job: &Job) -> Result<Nest, String> {
        let images = self.images();
        let restored = (!job.restore.is_empty()).then_some(&*images);
        if restored.is_some() {
            self.put_back(job, &images).map_err(|e| format!("its checkpoint cannot be put back: {e}"))?;
        }
        let scratch = self.scratch.as_ref().map(|s| s.dir().to_owned());
        Nest::new(&mut self.spawner, job, scratch.as_deref(), restored)
            .map_err(|e| format!("cannot make the job's namespaces: {e}"))
    }

    /// Everything that CRIU expects to find.
    fn put_back(&self, job: &Job, images: &Path) -> io::Result<()> {
        let archive = Path::new(&job.restore);
        let identity = job.identity.as_ref();
        let _ = fs::remove_dir_all(images);
        let unpacked = archive::unpack(archive, IMAGES, images, None).and_then(|()| match &self.scratch {
            Some(scratch) => archive::unpack(archive, SCRATCH, scratch.dir(), identity),
            None => Ok(()),
        });
        let _ = fs::remove_file(archive);
        unpacked?;
        let manifest = Manifest::decode(&*fs::read(images.join(MANIFEST))?).map_err(io::Error::other)?;
        if manifest.uid != uid_of(job) {
            let (then, now) = (manifest.uid, uid_of(job));
            return Err(io::Error::other(format!("its owner was user {then} there and is user {now} here")));
        }
        as_user::run(archive::who(identity), || nest::cut_back(&manifest.files))
    }

    /// Has the running job saved, as soon as that is possible.
    pub(crate) fn ask_to_dump(&mut self) {
        let images = self.images();
        let Some(running) = &mut self.running else { return };
        let Some(nest) = &mut running.nest else { return };
        running.asked = true;
        // What stands still cannot be saved; what is not there yet need not be.
        if nest.dumping || !nest.started || running.suspended {
            return;
        }
        let _ = fs::remove_dir_all(&images);
        // A directory that cannot be made shows in what CRIU says.
        let _ = fs::create_dir(&images);
        nest.dump(&images);
    }

    /// Hears what the running job's nest has to say.
    pub(crate) fn hear_nest(&mut self) {
        let words = self.running.as_mut().and_then(|r| r.nest.as_mut()).map(Nest::words).unwrap_or_default();
        for word in words {
            match word {
                Word::Started(_) => self.hatched(),
                Word::Dumped(dumped) => self.dumped(dumped),
                Word::Ended(exit) => {
                    if let Some(nest) = self.running.as_mut().and_then(|r| r.nest.as_mut()) {
                        nest.exit = Some(exit);
                    }
                }
                Word::Failed(failed) => self.not_hatched(|starter, job| match failed {
                    Failed { reason, ours: true, .. } => starter.report_unready(job, reason),
                    Failed { reason, code, subcode, .. } => {
                        starter.report(Happening::CannotStart(CannotStart { job, reason, code, subcode }));
                    }
                }),
                Word::NotRestored(reason) => self.not_hatched(|starter, job| {
                    starter.report_unready(job, format!("its checkpoint cannot be put back: {reason}"));
                }),
            }
        }
    }

    fn hatched(&mut self) {
        self.forget_images();
        let Some(running) = &mut self.running else { return };
        let Some(nest) = &mut running.nest else { return };
        nest.started = true;
        let (job, started_ms, asked) = (running.job.id, running.started_ms, running.asked);
        self.tell(Happening::Started(Started { job, started_ms }));
        if asked {
            self.ask_to_dump();
        }
    }

    fn not_hatched(&mut self, report: impl FnOnce(&mut Self, Attempt)) {
        let Some(running) = self.running.take() else { return };
        self.forget_images();
        self.empty_scratch();
        match running.evicted {
            // It was to leave anyway.
            Some(why) => self.report_evicted(running.job.id, why),
            None => report(self, running.job.id),
        }
    }

    /// The running job was saved, or could not be: it goes on, or leaves.
    fn dumped(&mut self, dumped: Dumped) {
        let Some(mut running) = self.running.take() else { return };
        running.asked = false;
        if let Some(nest) = &mut running.nest {
            nest.dumping = false;
        }
        // Somebody removed or held it meanwhile: it was sent its signal, and needs no checkpoint.
        let unwanted = running.kill_at_us.is_some() && running.evicted.is_none();
        let made = match (&*dumped.error, unwanted) {
            ("", false) => self.pack_images(&running, dumped.files),
            ("", true) => Err(io::Error::other("it is to end")),
            (error, _) => Err(io::Error::other(error)),
        };
        self.forget_images();
        match made {
            Ok((path, made)) => {
                let leaving = running.evicted.is_some();
                self.keep(&mut running, &path, made);
                if leaving {
                    // The checkpoint is what goes on; these processes do not.
                    running.kill();
                    crate::leftovers::kill_children();
                } else {
                    self.resume(running);
                }
            }
            Err(error) => {
                if running.evicted.is_some() {
                    let signal = running.job.stop_signal as i32;
                    running.signal(signal);
                }
                let job = running.job.id;
                self.resume(running);
                if !unwanted {
                    self.report_not_saved(job, error.to_string());
                }
            }
        }
    }

    fn resume(&mut self, mut running: Running) {
        if let Some(nest) = &mut running.nest {
            nest.go_on();
        }
        self.running = Some(running);
    }

    /// Everything that is needed to go on elsewhere, while nothing of the job moves.
    fn pack_images(
        &mut self,
        running: &Running,
        files: Vec<Written>,
    ) -> io::Result<(PathBuf, archive::Made)> {
        let images = self.images();
        let manifest = Manifest { files, uid: uid_of(&running.job) };
        fs::write(images.join(MANIFEST), manifest.encode_to_vec())?;
        let path = self.checkpoints.next_path();
        let scratch = self.scratch.as_ref().map(|s| (SCRATCH, s.dir()));
        let made = archive::pack_both((IMAGES, &images), scratch, &path, running.job.identity.as_ref())?;
        Ok((path, made))
    }
}
