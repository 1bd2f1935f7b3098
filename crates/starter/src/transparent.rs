//! Checkpoints of jobs that do not know of them: CRIU's images, the scratch directory and the sizes of the files that
//! were being written, in one archive; and the way back.
//!
//! The processes live in a `nest`, which does the saving. Here is what it takes to keep what was saved, and when that is
//! asked for; the rest is the same as for every checkpoint (`checkpoint`).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use model::report::{Attempt, CannotStart, Happening, Started};
use prost::Message;

use crate::checkpoint::limit_size;
use crate::chore::Chore;
use crate::nest::{self, Dumped, Failed, Nest, Word, Written};
use crate::run::Starter;
use crate::running::{Running, Then};
use crate::scratch::Scratch;
use crate::seal::{self, KnownFiles};
use crate::wire::Job;
use crate::{archive, remove, sys};

/// CRIU's images, and the job's scratch directory, in the archive.
pub(crate) const IMAGES: &str = "images";
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
    /// Everything that was open outside the scratch directory, by name.
    #[prost(bytes = "vec", repeated, tag = "3")]
    names: Vec<Vec<u8>>,
    /// The job and the attempt that was saved.
    #[prost(message, optional, tag = "4")]
    job: Option<Attempt>,
    /// The code of all this and of the images, made without it.
    #[prost(bytes = "vec", tag = "5")]
    code: Vec<u8>,
}

impl Manifest {
    fn code_of(&self, images: &Path, job: &Job) -> io::Result<Vec<u8>> {
        let rest = Self { code: Vec::new(), ..self.clone() };
        let key = job.nest.as_ref().map(|n| &*n.key).unwrap_or_default();
        seal::code(images, MANIFEST, &rest.encode_to_vec(), key)
    }

    /// The manifest of images that this pool made of this job, with the rights that it has here.
    fn check(images: &Path, job: &Job) -> io::Result<Self> {
        let manifest = Self::decode(&*fs::read(images.join(MANIFEST))?).map_err(io::Error::other)?;
        let of = |a: Attempt| (a.cluster, a.proc);
        // A later attempt than ours cannot have been saved.
        let ours =
            manifest.job.is_some_and(|saved| of(saved) == of(job.id) && saved.attempt <= job.id.attempt);
        if !ours || !seal::is_same(&manifest.code, &manifest.code_of(images, job)?) {
            return Err(io::Error::other("it is not what this pool saved of this job"));
        }
        if manifest.uid != uid_of(job) {
            let (then, now) = (manifest.uid, uid_of(job));
            return Err(io::Error::other(format!("its owner was user {then} there and is user {now} here")));
        }
        seal::check_credentials(images, job.identity.as_ref())?;
        Ok(manifest)
    }
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
        let images = self.images();
        if let Ok(dir) = fs::File::open(&images) {
            // Ours: nobody else can put anything there.
            let _ = remove::empty(dir.as_fd());
            let _ = fs::remove_dir(&images);
        }
    }

    /// Starts a job in a nest, from its images when it has any.
    pub(crate) fn start_nested(&mut self, job: &Job, known: Option<&[u8]>) -> Result<Nest, String> {
        let images = self.images();
        let known = known.map(KnownFiles::decode).transpose();
        let known = known.map_err(|e| format!("its checkpoint cannot be put back: {e}"))?;
        let restored = known.as_ref().map(|known| (&*images, known));
        let scratch = self.scratch.as_ref().map(|s| s.dir().to_owned());
        Nest::new(&mut self.spawner, job, scratch.as_deref(), restored, self.start_us / 1000)
            .map_err(|e| format!("cannot make the job's namespaces: {e}"))
    }

    /// The images are in place: everything else that CRIU expects to find.
    pub(crate) fn restore_scratch(&mut self, from: &File, manifest: &[u8]) {
        let Some(running) = &mut self.running else { return };
        let job = &running.job;
        let begun = Manifest::decode(manifest).map_err(io::Error::other).and_then(|manifest| {
            let scratch = self.scratch.as_ref().map(Scratch::dir);
            Chore::begin(job.identity.as_ref(), &[from.as_fd()], || {
                if let Some(scratch) = scratch {
                    archive::unpack(from, SCRATCH, scratch)?;
                }
                nest::cut_back(&manifest.files)?;
                seal::open_all(&manifest.names).map(|known| known.encode_to_vec())
            })
        });
        match begun {
            Ok(chore) => running.chore = Some((chore, Then::Start)),
            Err(error) => self.cannot_restore(&error),
        }
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
        self.forget_images();
        let Some(nest) = self.running.as_mut().and_then(|r| r.nest.as_mut()) else { return };
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
        let (job, started, asked) = (running.job.id, running.started, running.asked);
        self.tell_at(started, Happening::Started(Started { job }));
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
        let begun = match (&*dumped.error, running.is_unwanted()) {
            ("", false) => self.begin_to_pack(&running, dumped),
            ("", true) => Err(io::Error::other("it is to end")),
            (error, _) => Err(io::Error::other(error)),
        };
        match begun {
            Ok(chore) => {
                running.chore = Some(chore);
                self.running = Some(running);
            }
            Err(error) => {
                self.running = Some(running);
                self.packed_images(Path::new(""), Err(error));
            }
        }
    }

    /// The running job's images are packed, or cannot be: it goes on, or leaves.
    pub(crate) fn packed_images(&mut self, path: &Path, made: io::Result<archive::Made>) {
        let Some(mut running) = self.running.take() else { return };
        self.forget_images();
        let unwanted = running.is_unwanted();
        let made = if unwanted { Err(io::Error::other("it is to end")) } else { made };
        match made {
            Ok(made) => {
                let leaving = running.evicted.is_some();
                self.keep(&mut running, path, made);
                if leaving {
                    // The checkpoint is what goes on; these processes do not.
                    running.kill();
                    self.clear_away(&running);
                } else {
                    self.resume(running);
                }
            }
            Err(error) => {
                let _ = fs::remove_file(path);
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

    /// Begins to pack everything that is needed to go on elsewhere, while nothing of the job moves: first what is ours.
    fn begin_to_pack(&mut self, running: &Running, dumped: Dumped) -> io::Result<(Chore, Then)> {
        let images = self.images();
        let Dumped { files, names, .. } = dumped;
        let (job, uid) = (&running.job, uid_of(&running.job));
        let mut manifest = Manifest { files, uid, names, job: Some(job.id), code: Vec::new() };
        let path = self.checkpoints.next_path();
        let (to, most) = (archive::create(&path)?, self.checkpoint_bytes);
        let chore = Chore::begin(None, &[to.as_fd()], || {
            limit_size(most)?;
            manifest.code = manifest.code_of(&images, job)?;
            fs::write(images.join(MANIFEST), manifest.encode_to_vec())?;
            archive::pack_dir(IMAGES, &images, &to).map(|made| made.to_bytes())
        })?;
        Ok((chore, Then::PackScratch { path, to }))
    }

    /// The images are packed: now, with the user's rights, what is the job's.
    pub(crate) fn pack_scratch(&mut self, path: PathBuf, to: File, made: &[u8]) {
        let most = self.checkpoint_bytes;
        let Some(scratch) = &self.scratch else {
            return self.packed_images(&path, archive::Made::of_bytes(made));
        };
        let Some(running) = &mut self.running else { return };
        let begun = Chore::begin(running.job.identity.as_ref(), &[to.as_fd()], || {
            limit_size(most)?;
            archive::pack_dir(SCRATCH, scratch.dir(), &to).map(|made| made.to_bytes())
        });
        match begun {
            Ok(chore) => running.chore = Some((chore, Then::KeepImages { path })),
            Err(error) => self.packed_images(&path, Err(error)),
        }
    }
}

/// In a chore of ours: unpacks the images of a checkpoint and looks whether they may be put back; returns their manifest.
pub(crate) fn unpack_images(from: &File, images: &Path, job: &Job) -> io::Result<Vec<u8>> {
    archive::unpack_ours(from, IMAGES, images)?;
    Manifest::check(images, job).map(|manifest| manifest.encode_to_vec())
}
