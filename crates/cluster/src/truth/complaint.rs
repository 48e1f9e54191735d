//! Why there is no primary, in words.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Truth;
use super::member::Member;
use crate::election::{Epoch, Outcome, Writer};

impl Truth {
    /// What an operator has to know: a node would take writes and gets none. `None` if no node would.
    pub(super) fn complaint(&self) -> Option<Arc<str>> {
        if !self.settled {
            return None;
        }
        let text = match self.outcome {
            Outcome::Elected(_) | Outcome::Asked(_) => return None,
            Outcome::Vacant => self.refusals()?,
            Outcome::SeveralSystems => {
                format!("nodes of different systems take writes ({})", self.writable()?)
            }
            Outcome::SeveralPrimaries => {
                format!("split brain: several nodes take writes on the same timeline ({})", self.writable()?)
            }
            Outcome::OtherWriter(index) => {
                let (node, writer) = (self.name(index)?, self.epoch.as_ref()?.writer.as_ref()?);
                let Writer { name, address } = writer;
                format!(
                    "split brain: node \"{node}\" takes writes on timeline {}, on which node \"{name}\" ({address}) \
                     has written",
                    self.epoch.as_ref()?.timeline
                )
            }
            Outcome::OtherHistory(index) => {
                let (node, timeline) = (self.name(index)?, self.epoch.as_ref()?.timeline);
                format!(
                    "split brain: the timeline {timeline} of node \"{node}\" left its ancestor elsewhere than the \
                     timeline {timeline} that was seen before"
                )
            }
        };
        Some(text.into())
    }

    fn name(&self, index: usize) -> Option<&str> {
        self.members.get(index).map(|member| &*member.node.name)
    }

    /// The nodes that would take writes.
    fn writable(&self) -> Option<String> {
        let writable = |member: &&Member| member.ballot().is_some_and(|ballot| ballot.writable);
        let names: Vec<_> = self.members.iter().filter(writable).map(|member| &*member.node.name).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The nodes that would take writes on another lineage than the accepted one.
    fn refusals(&self) -> Option<String> {
        let accepted = self.epoch.as_ref().map(Epoch::line)?;
        let mut text = String::new();
        for member in &self.members {
            let Some(ballot) = member.ballot().filter(|ballot| ballot.writable) else { continue };
            let (node, line) = (&member.node.name, ballot.line);
            let before = if text.is_empty() { "" } else { "; " };
            let written = if line.system_id == accepted.system_id {
                let (its, seen) = (line.timeline, accepted.timeline);
                write!(
                    text,
                    "{before}node \"{node}\" takes writes on timeline {its}, but timeline {seen} was seen"
                )
            } else {
                let (its, seen) = (line.system_id, accepted.system_id);
                write!(text, "{before}node \"{node}\" takes writes for system {its}, but {seen} was accepted")
            };
            written.ok()?;
        }
        (!text.is_empty()).then_some(text)
    }
}
