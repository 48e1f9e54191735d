//! Settings of a session.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::sync::Arc;

/// Settings by name, each with the SQL text of its value as `SET name = text` takes it.
///
/// Cheap to clone and to compare: clones share their contents until one is changed. Names are compared as the server
/// compares them, without regard to the case of ASCII letters, and are kept in lower case.
#[derive(Clone, Debug, Default)]
pub struct Settings(Option<Arc<Map>>);

type Map = BTreeMap<Box<str>, Box<str>>;

/// One step from the settings of a connection to those a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// To be set: the name and the SQL text of the value.
    Set(&'a str, &'a str),
    /// To be reset to what the connection was opened with.
    Reset(&'a str),
}

// === impl Settings ===

impl Settings {
    /// The SQL text of a setting's value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(&*canonical(name)).map(|value| &**value)
    }

    /// Sets `name` to the value with the SQL text `value`.
    pub fn set(&mut self, name: &str, value: &str) {
        if self.value(name) != Some(value) {
            let map = Arc::make_mut(self.0.get_or_insert_default());
            map.insert(canonical(name).into(), value.into());
        }
    }

    /// Forgets `name`, as RESET does.
    pub fn reset(&mut self, name: &str) {
        if self.value(name).is_some()
            && let Some(map) = &mut self.0
        {
            Arc::make_mut(map).remove(&*canonical(name));
        }
        if self.is_empty() {
            self.0 = None;
        }
    }

    /// Forgets everything, as RESET ALL does.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Forgets everything but these.
    pub fn clear_but(&mut self, names: &[&str]) {
        let kept: Vec<_> =
            names.iter().filter_map(|name| Some((*name, Box::from(self.value(name)?)))).collect();
        self.clear();
        for (name, value) in kept {
            let value: Box<str> = value;
            self.set(name, &value);
        }
    }

    /// How many settings there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |map| map.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|map| map.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Whether both hold the same settings; at once when they share their contents.
    pub fn same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// What leads from `self`, the settings of a connection, to `wanted`, by name.
    pub fn difference<'a>(&'a self, wanted: &'a Self) -> impl Iterator<Item = Change<'a>> {
        let shared = self.same(wanted);
        let entries = |settings: &'a Self| {
            let map = settings.0.as_deref().filter(|_| !shared);
            map.map(BTreeMap::iter).unwrap_or_default().peekable()
        };
        Difference { present: entries(self), wanted: entries(wanted) }
    }
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

impl Eq for Settings {}

impl<'a> FromIterator<(&'a str, &'a str)> for Settings {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(entries: I) -> Self {
        let mut settings = Self::default();
        for (name, value) in entries {
            settings.set(name, value);
        }
        settings
    }
}

fn canonical(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// A merge of two maps in the order of their names.
struct Difference<'a> {
    present: Peekable<btree_map::Iter<'a, Box<str>, Box<str>>>,
    wanted: Peekable<btree_map::Iter<'a, Box<str>, Box<str>>>,
}

// === impl Difference ===

impl<'a> Iterator for Difference<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        loop {
            let order = match (self.present.peek(), self.wanted.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((present, _)), Some((wanted, _))) => present.cmp(wanted),
            };
            match order {
                Ordering::Less => return self.present.next().map(|(name, _)| Change::Reset(name)),
                Ordering::Greater => return self.wanted.next().map(|(name, value)| Change::Set(name, value)),
                Ordering::Equal => {
                    let (_, old) = self.present.next()?;
                    let (name, value) = self.wanted.next()?;
                    if old != value {
                        return Some(Change::Set(name, value));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(entries: &[(&str, &str)]) -> Settings {
        entries.iter().copied().collect()
    }

    #[test]
    fn clones_share_until_changed() {
        let one = settings(&[("timezone", "'UTC'"), ("search_path", "shop, public")]);
        let mut other = one.clone();
        assert!(other.same(&one));
        other.set("TimeZone", "'UTC'");
        assert!(
            Arc::ptr_eq(other.0.as_ref().unwrap(), one.0.as_ref().unwrap()),
            "setting what is set copies nothing"
        );
        other.set("timezone", "'Asia/Tokyo'");
        assert!(!other.same(&one));
        assert_eq!(one.value("timezone"), Some("'UTC'"));
        other.set("TIMEZONE", "'UTC'");
        assert!(other.same(&one), "equal by content");
    }

    #[test]
    fn an_emptied_map_is_the_default() {
        let mut one = settings(&[("work_mem", "'8MB'")]);
        one.reset("absent");
        assert_eq!(one.len(), 1);
        one.reset("WORK_MEM");
        assert!(one.same(&Settings::default()));
        assert_eq!(one.iter().count(), 0);
    }

    #[test]
    fn the_difference_leads_from_one_to_the_other() {
        let present = settings(&[("a", "1"), ("b", "2"), ("d", "4")]);
        let wanted = settings(&[("b", "3"), ("c", "5"), ("d", "4"), ("e", "6")]);
        let changes: Vec<_> = present.difference(&wanted).collect();
        assert_eq!(
            changes,
            [Change::Reset("a"), Change::Set("b", "3"), Change::Set("c", "5"), Change::Set("e", "6")]
        );
        let mut reached = present.clone();
        for change in changes {
            match change {
                Change::Set(name, value) => reached.set(name, value),
                Change::Reset(name) => reached.reset(name),
            }
        }
        assert!(reached.same(&wanted));
        assert_eq!(wanted.difference(&wanted.clone()).count(), 0);
        assert_eq!(Settings::default().difference(&Settings::default()).count(), 0);
    }
}
