//! Keeps a node's slices at the apiserver as they have to be, whoever changes them: kubelet removes them when it starts.

use crate::apiserver::{ApiError, ApiServer};
use crate::slices::{self, COLLECTION, Change, Device, Node};
use http::StatusCode;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

/// How long it leaves changes of others alone, so that two that disagree don't keep the apiserver busy. After each failure
/// in a row it waits twice as long as after the one before, at most so long.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(8);

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// So many devices are known now.
    Published(usize),
    /// Why that isn't so.
    Trouble(String),
}

/// What it publishes, and how it is told.
#[derive(Debug)]
pub struct Publisher {
    /// Where slices are.
    pub apiserver: ApiServer,
    /// The node's name.
    pub node: String,
    /// Those devices that claims may have, as soon as that is known.
    pub wanted: watch::Receiver<Option<Vec<Device>>>,
    /// That it is to look, whatever it thinks there is.
    pub look: Arc<Notify>,
    /// What it says.
    pub said: mpsc::Sender<Said>,
}

impl Publisher {
    /// Publishes for as long as there is something to publish.
    pub async fn run(self) {
        let mut wanted = self.wanted.clone();
        let mut pause = PAUSE;
        loop {
            let devices = wanted.borrow_and_update().clone();
            let done = tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                Some(done) = async { Some(self.publish(devices.as_deref()?).await) } => done,
            };
            let Err(error) = done else {
                pause = PAUSE;
                continue;
            };
            // Where another was faster once, all is as it should be.
            if !error.is_overtaken() || pause > PAUSE {
                let text = format!("claims see not what there is: {error}");
                let _ = self.said.send(Said::Trouble(text)).await;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST);
        }
    }

    /// Makes slices what they have to be, and waits until they may not be so any more.
    async fn publish(&self, devices: &[Device]) -> Result<(), ApiError> {
        let selection = slices::selection(&self.node);
        let list: Value = self.apiserver.get(&selection).await?;
        let there = slices::of(&list, &self.node);
        let node = self.node(devices.is_empty() && there.is_empty()).await?;
        for change in slices::changes(&node, devices, &there) {
            self.apply(change).await?;
        }
        let _ = self.said.send(Said::Published(devices.len())).await;
        tokio::select! {
            changed = self.apiserver.changes(&selection, slices::version(&list)) => {
                match changed {
                    // A version that is too old.
                    Err(ApiError::Refused(StatusCode::GONE, _)) | Ok(()) => {
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) => return Err(error),
                }
            }
            () = self.look.notified() => {}
        }
        Ok(())
    }

    /// The node, which nothing need be asked of where nothing is to be made.
    async fn node(&self, is_idle: bool) -> Result<Node, ApiError> {
        let name = self.node.clone();
        let uid = if is_idle {
            String::new()
        } else {
            let path = format!("/api/v1/nodes/{name}");
            let node: Value = self.apiserver.get(&path).await?;
            let uid = node["metadata"]["uid"].as_str();
            uid.unwrap_or_default().into()
        };
        Ok(Node { name, uid })
    }

    async fn apply(&self, change: Change) -> Result<(), ApiError> {
        match change {
            Change::Create(slice) => self.apiserver.create(COLLECTION, &*slice).await,
            Change::Replace(name, slice) => {
                let path = format!("{COLLECTION}/{name}");
                self.apiserver.replace(&path, &*slice).await
            }
            Change::Remove(name) => self.apiserver.remove(&format!("{COLLECTION}/{name}")).await,
        }
    }
}
