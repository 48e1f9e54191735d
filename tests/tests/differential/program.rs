//! What a test's clients do, in a form that can be printed and made smaller.

use std::fmt;

use causeway_testkit::wire::Request;

/// Units of one or two clients, each carried out to its `ReadyForQuery` before the next begins.
#[derive(Clone)]
pub(crate) struct Program {
    /// What it was made from.
    pub(crate) seed: u64,
    /// One or two.
    pub(crate) sessions: usize,
    /// Start-up parameters of every session, beside user and database.
    pub(crate) startup: Vec<(&'static str, &'static str)>,
    pub(crate) units: Vec<Unit>,
}

/// Requests up to a Query or Sync.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) session: usize,
    pub(crate) steps: Vec<Step>,
    /// How the client answers a `CopyInResponse` that it gets.
    pub(crate) copy: Copy,
    /// The sizes of the first pieces in which the bytes go to Causeway; the rest goes as one.
    pub(crate) pieces: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    Row(&'static str),
    Fail,
}

/// A request and what more there is to say of it than its `Debug` says.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) request: Request,
    pub(crate) note: String,
}

impl From<Request> for Step {
    fn from(request: Request) -> Self {
        Self { request, note: String::new() }
    }
}

impl Unit {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.steps.iter().flat_map(|step| step.request.encode()).collect()
    }

    /// Whether it ends in a Query, so that COPY wants no Sync after it.
    pub(crate) fn is_simple(&self) -> bool {
        self.steps.last().is_some_and(|step| step.request.tag == b'Q')
    }
}

/// `0: P(a: SELECT 1) B( <- a) E( 0) S  in pieces of 3, 9`
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.session)?;
        for step in &self.steps {
            write!(f, " {:?}{}", step.request, step.note)?;
        }
        if !self.pieces.is_empty() {
            write!(f, "  in pieces of {:?}", self.pieces)?;
        }
        if self.steps.iter().any(|step| String::from_utf8_lossy(&step.request.body).contains("FROM STDIN")) {
            write!(f, "  on G: {:?}", self.copy)?;
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {} with {} session(s), start-up {:?}", self.seed, self.sessions, self.startup)?;
        for unit in &self.units {
            writeln!(f, "  {unit}")?;
        }
        Ok(())
    }
}
