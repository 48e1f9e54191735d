//! What readers are given.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use causeway_routing::{Lsn, View};

use crate::election::Epoch;
use crate::fences::Fences;
use crate::instance::Instance;
use crate::source::FenceSource;
use crate::truth::{Key, Observed, Past, Reign};

/// Everything readers see, published as a whole. With every answer of a primary that nobody writes to only the fences
/// are others, by the times that they hold for.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) standing: Arc<Standing>,
    pub(crate) fences: Option<Arc<Fences>>,
}

/// What stands as long as nothing but time has moved.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    pub(crate) view: Arc<View>,
    /// The monitors of the view's nodes.
    pub(crate) keys: Vec<Key>,
    /// Where fences come from.
    pub(crate) source: FenceSource,
    /// Why that is not what was configured.
    pub(crate) source_why: Option<Arc<str>>,
    /// The primary, and which server that is, while its monitor is connected.
    pub(crate) primary: Option<(Key, Instance)>,
    /// The same whether it is or not.
    pub(crate) reign: Option<Reign>,
    /// Counts the servers that were primaries, and the times between them in which the last one was known to be none.
    pub(crate) era: u64,
    /// Earlier primaries.
    pub(crate) past: Arc<Past>,
    /// Whose positions the fences are: the primary's, or the last one's.
    pub(crate) sampled: Option<Key>,
    /// What the primary had flushed, if that was not all.
    pub(crate) unflushed: Option<Lsn>,
    pub(crate) observed: Vec<Option<Observed>>,
    /// Why a node is in its state, where that needs words.
    pub(crate) why: Vec<Option<Cow<'static, str>>>,
    pub(crate) epoch: Option<Epoch>,
    /// Every node was tried once.
    pub(crate) settled: bool,
}

impl Deref for Published {
    type Target = Standing;

    fn deref(&self) -> &Standing {
        &self.standing
    }
}
