//! Settings that are read again while the manager runs. Who started the manager knows where they come from; the writer goes on
//! with them as after a restart, and every machine says again what it holds.

use std::sync::Arc;

use crate::http::Shared;

/// Settings that were read again.
pub struct Reloaded {
    /// For the scheduler.
    pub settings: scheduler::Settings,
    /// For the object store.
    pub store: store::Settings,
    /// What is told to whoever asked.
    pub told: Vec<String>,
    /// What else begins when the settings are in force.
    pub then: Box<dyn FnOnce() + Send>,
}

/// Reads the settings again; an error changes nothing.
#[derive(Clone)]
pub struct Reload(pub Arc<dyn Fn() -> Result<Reloaded, String> + Send + Sync>);

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reload")
    }
}

impl Shared {
    /// Reads the settings again and brings them into force: what is to be told of them.
    pub(crate) async fn reload(&self) -> Result<Vec<String>, String> {
        let Some(Reload(read)) = self.reload.clone() else {
            return Err("this manager was started without files to read its settings from".to_owned());
        };
        // Files may be on a disk that takes its time.
        let read = tokio::task::spawn_blocking(move || read()).await.map_err(|e| e.to_string())?;
        let Reloaded { settings, store, told, then } = read.inspect_err(|why| {
            tracing::error!("the new configuration is refused, the old one stays in force:\n{why}");
        })?;
        self.handle.reconfigure(settings).await.map_err(|e| e.to_string())?;
        self.handle.objects.reconfigure(self.sharing.adapt(store));
        then();
        Ok(told)
    }
}
