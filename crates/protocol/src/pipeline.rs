//! Which answers a server owes, in order, and which of them the client may see.
//!
//! One [`Pipeline`] accounts for one *unit*: a simple Query, or the extended messages up to a Sync. The rules are
//! those of <https://www.postgresql.org/docs/current/protocol-flow.html>: every extended request has one final
//! answer, an error skips what follows up to Sync, and a Sync or Flush that reaches a server in copy-in mode is
//! ignored there (`CopyGetData` in `src/backend/commands/copyfromparse.c`).

mod queue;

use queue::Queue;

/// A request that gets an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Query: anything up to ReadyForQuery.
    Query,
    /// FunctionCall: likewise.
    FunctionCall,
    /// Parse: ParseComplete.
    Parse,
    /// Bind: BindComplete.
    Bind,
    /// Describe of a statement: ParameterDescription, then RowDescription or NoData.
    DescribeStatement,
    /// Describe of a portal: RowDescription or NoData.
    DescribePortal,
    /// Execute: rows, then CommandComplete, PortalSuspended or EmptyQueryResponse.
    Execute,
    /// Close: CloseComplete.
    Close,
    /// Sync: ReadyForQuery.
    Sync,
}

/// Who asked, and who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The client asked and the server answers.
    Client,
    /// The proxy asked: the answer never reaches the client.
    Injected,
    /// The client asked and the proxy answers, in its turn.
    Answered,
}

/// One request whose answer is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// What was asked.
    pub request: Request,
    /// Who asked, and who answers.
    pub origin: Origin,
    /// What the owner of the pipeline wants to know again when the answer comes.
    pub token: u32,
}

/// What a message from the server means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Part of an answer; `visible` says whether the client sees it.
    Part {
        /// The client sees it.
        visible: bool,
    },
    /// The last message of the answer to `0`.
    Final(Owed),
    /// An error that ends the answer to `0`, or for a Query or FunctionCall comes before its end. Requests up to
    /// the next Sync are skipped: take them with [`Pipeline::take_skipped`].
    Failed(Owed),
    /// An error that answers no request: the server is about to close the connection.
    Unsolicited,
    /// A notice, a parameter's new value or a notification, which may come at any time.
    Asynchronous {
        /// The client sees it: no injected request is being answered.
        visible: bool,
    },
}

/// The server sent a message that answers nothing it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected message of type {tag:?} from the server, while {owed:?} was owed")]
pub struct Unexpected {
    /// The message's tag.
    pub tag: char,
    /// What it should have answered.
    pub owed: Option<Request>,
}

/// Where a COPY from the client stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CopyIn {
    #[default]
    None,
    /// The client ended its data before the server was seen to ask for it, and has sent so many Syncs since.
    EndedEarly { syncs: usize },
    /// The server reads data.
    Open,
}

/// What a message means, given the request that is the next to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// It answers nothing that is owed.
    Unexpected,
    /// Part of an answer.
    Part,
    /// The end of an answer within a unit.
    Final,
    /// The server turns to copying, and reads data from the client.
    CopyBegins,
    /// A notice or a parameter's new value.
    Asynchronous,
    /// A notification.
    Notification,
    /// An error.
    Error,
    /// The end of a unit.
    Ready,
}

/// The answers owed for one unit.
#[derive(Debug, Default)]
pub struct Pipeline {
    owed: Queue,
    skipped: Vec<Owed>,
    copy_in: CopyIn,
    /// An error was seen and no Sync has been sent since: the server discards what it gets.
    discarding: bool,
    /// Extended requests were sent and no Sync after them.
    open: bool,
    /// Syncs that a server in copy-in mode was believed to ignore; if the copy had already failed, it answers them.
    doubtful_syncs: u32,
}

// === impl Request ===

impl Request {
    /// Every request, in the order of [`Request::index`].
    const ALL: [Self; 9] = [
        Self::Query,
        Self::FunctionCall,
        Self::Parse,
        Self::Bind,
        Self::DescribeStatement,
        Self::DescribePortal,
        Self::Execute,
        Self::Close,
        Self::Sync,
    ];

    const fn index(self) -> usize {
        match self {
            Self::Query => 0,
            Self::FunctionCall => 1,
            Self::Parse => 2,
            Self::Bind => 3,
            Self::DescribeStatement => 4,
            Self::DescribePortal => 5,
            Self::Execute => 6,
            Self::Close => 7,
            Self::Sync => 8,
        }
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Accounts for a request that is sent to the server, or answered by the proxy.
    #[inline]
    pub fn push(&mut self, request: Request, origin: Origin, token: u32) {
        let owed = Owed { request, origin, token };
        if self.discarding || request == Request::Sync && self.copy_in != CopyIn::None {
            return self.push_aside(owed);
        }
        // Query, FunctionCall and Sync end a unit.
        self.open = !matches!(request, Request::Query | Request::FunctionCall | Request::Sync);
        self.owed.push(owed);
    }

    /// Accounts for a request that comes after an error, or for a Sync around the data of a COPY.
    fn push_aside(&mut self, owed: Owed) {
        if owed.request != Request::Sync {
            self.open = true;
            return self.skipped.push(owed);
        }
        match &mut self.copy_in {
            CopyIn::Open => {
                self.doubtful_syncs = self.doubtful_syncs.saturating_add(1);
                return;
            }
            CopyIn::EndedEarly { syncs } => *syncs = syncs.saturating_add(1),
            CopyIn::None => {}
        }
        self.open = false;
        self.discarding = false;
        self.owed.push(owed);
    }

    /// Accounts for CopyDone or CopyFail on its way to the server. One that follows nothing that could have begun a COPY is
    /// ignored there (`PostgresMain` in `src/backend/tcop/postgres.c`).
    pub fn copy_ended(&mut self) {
        let stray = !self.owed.any(|owed| matches!(owed.request, Request::Execute | Request::Query));
        self.copy_in = match self.copy_in {
            CopyIn::Open => CopyIn::None,
            CopyIn::None if stray => CopyIn::None,
            CopyIn::None => CopyIn::EndedEarly { syncs: 0 },
            ended @ CopyIn::EndedEarly { .. } => ended,
        };
    }

    /// Accounts for one message from the server.
    ///
    /// # Errors
    ///
    /// When nothing that is owed is answered by such a message. The stream cannot be trusted any further.
    #[inline]
    pub fn answer(&mut self, tag: u8) -> Result<Answer, Unexpected> {
        if self.owed.is_empty() {
            return self.unasked(tag);
        }
        let head = self.owed.head();
        let visible = head.origin != Origin::Injected;
        match meaning(head.request, tag) {
            Meaning::Part => Ok(Answer::Part { visible }),
            Meaning::Final => {
                self.owed.drop_front();
                if head.request == Request::Execute && self.copy_in == CopyIn::Open {
                    self.copy_in = CopyIn::None;
                }
                Ok(Answer::Final(head))
            }
            Meaning::Ready => {
                self.owed.drop_front();
                // What the proxy asked ahead of the unit says nothing of the unit's own COPY.
                if visible {
                    self.copy_in = CopyIn::None;
                }
                if self.owed.is_empty() && !self.open {
                    self.doubtful_syncs = 0;
                }
                Ok(Answer::Final(head))
            }
            Meaning::CopyBegins => {
                self.copy_begins();
                Ok(Answer::Part { visible })
            }
            // Notices and settings belong to what is being answered; a notification is the client's in any case.
            Meaning::Asynchronous => Ok(Answer::Asynchronous { visible }),
            Meaning::Notification => Ok(Answer::Asynchronous { visible: true }),
            Meaning::Error => Ok(self.error()),
            Meaning::Unexpected => Err(self.unexpected(tag)),
        }
    }

    /// A message that comes while nothing is owed.
    #[cold]
    fn unasked(&mut self, tag: u8) -> Result<Answer, Unexpected> {
        match tag {
            b'N' | b'S' | b'A' => Ok(Answer::Asynchronous { visible: true }),
            b'E' => Ok(Answer::Unsolicited),
            // A Sync that was believed ignored, but came after the copy had failed.
            b'Z' if self.discarding && self.doubtful_syncs > 0 => {
                self.doubtful_syncs = self.doubtful_syncs.saturating_sub(1);
                self.discarding = false;
                self.open = false;
                Ok(Answer::Final(Owed { request: Request::Sync, origin: Origin::Client, token: 0 }))
            }
            _ => Err(self.unexpected(tag)),
        }
    }

    /// The next request that the proxy itself answers, if its turn has come.
    #[inline]
    pub fn take_answered(&mut self) -> Option<Owed> {
        self.owed.pop_if(|owed| owed.origin == Origin::Answered)
    }

    /// Whether the next answer is the proxy's own.
    #[inline]
    pub fn answers_next(&self) -> bool {
        self.owed.front().is_some_and(|owed| owed.origin == Origin::Answered)
    }

    /// The requests that the server skips, in the order they were sent.
    pub fn take_skipped(&mut self) -> Vec<Owed> {
        std::mem::take(&mut self.skipped)
    }

    /// Whether anything was skipped and not taken yet.
    #[inline]
    pub fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// Whether rows may pass uncounted: the answer being given is one the client sees.
    #[inline]
    pub fn visible(&self) -> bool {
        self.owed.front().is_none_or(|owed| owed.origin != Origin::Injected)
    }

    /// Whether rows are a possible part of the answer being given.
    #[inline]
    pub fn in_rows(&self) -> bool {
        self.owed.front().is_some_and(|owed| matches!(owed.request, Request::Query | Request::Execute))
    }

    /// Whether nothing is owed and the last unit is complete.
    #[inline]
    pub fn is_quiescent(&self) -> bool {
        self.owed.is_empty() && !self.open && !self.discarding
    }

    /// Whether extended messages are still missing their Sync.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open || self.discarding
    }

    /// Whether the server reads copy data from the client.
    #[inline]
    pub fn in_copy(&self) -> bool {
        self.copy_in == CopyIn::Open
    }

    /// Whether the answer to one client's Query, with no token, is all that is owed, and nothing of it has been COPY.
    #[inline]
    pub fn owes_lone_query(&self) -> bool {
        const LONE: Owed = Owed { request: Request::Query, origin: Origin::Client, token: 0 };
        self.owed.len() == 1
            && self.owed.head() == LONE
            && !self.is_open()
            && !self.has_skipped()
            && self.copy_in == CopyIn::None
    }

    /// Forgets everything: the connection is gone, or a new unit begins.
    #[inline]
    pub fn clear(&mut self) {
        // In place: the queue is long, and this is done for every unit.
        let Self { owed, skipped, copy_in, discarding, open, doubtful_syncs } = self;
        owed.clear();
        skipped.clear();
        *copy_in = CopyIn::None;
        (*discarding, *open, *doubtful_syncs) = (false, false, 0);
    }

    #[cold]
    fn unexpected(&self, tag: u8) -> Unexpected {
        Unexpected { tag: char::from(tag), owed: self.owed.front().map(|owed| owed.request) }
    }

    /// The server turns to copy-in mode: Syncs sent after the request that caused it are ignored there, up to the end
    /// of the client's data.
    fn copy_begins(&mut self) {
        let after_data = match self.copy_in {
            CopyIn::EndedEarly { syncs } => syncs,
            CopyIn::None | CopyIn::Open => 0,
        };
        self.copy_in = match self.copy_in {
            CopyIn::EndedEarly { .. } => CopyIn::None,
            CopyIn::None | CopyIn::Open => CopyIn::Open,
        };
        if self.owed.front().is_none_or(|owed| owed.request != Request::Execute) {
            return;
        }
        let mut syncs = 0_usize;
        self.owed.retain(|owed| {
            syncs = syncs.saturating_add(usize::from(owed.request == Request::Sync));
            true
        });
        let ignored = syncs.saturating_sub(after_data);
        let mut left = ignored;
        self.owed.retain(|owed| {
            let take = owed.request == Request::Sync && left > 0;
            left = left.saturating_sub(usize::from(take));
            !take
        });
        self.doubtful_syncs = self.doubtful_syncs.saturating_add(u32::try_from(ignored).unwrap_or(u32::MAX));
        self.open |= ignored > 0 && after_data == 0;
    }

    fn error(&mut self) -> Answer {
        // The requests before the failed one that the proxy answers were taken before: they cannot be at the head.
        let Some(head) = self.owed.front() else {
            return Answer::Unsolicited;
        };
        match head.request {
            Request::Query | Request::FunctionCall => {
                self.copy_in = CopyIn::None;
                return Answer::Failed(head);
            }
            // Sync commits: a deferred constraint fails here, and ReadyForQuery still follows.
            Request::Sync => return Answer::Failed(head),
            _ => {}
        }
        self.copy_in = CopyIn::None;
        self.owed.drop_front();
        while let Some(owed) = self.owed.pop_if(|owed| owed.request != Request::Sync) {
            self.skipped.push(owed);
        }
        if self.owed.is_empty() {
            self.discarding = true;
        }
        Answer::Failed(head)
    }
}

/// What a message of this type means while this request is the next to be answered.
#[inline]
fn meaning(owed: Request, tag: u8) -> Meaning {
    let row = MEANINGS.get(owed.index());
    row.and_then(|row| row.get(usize::from(tag))).copied().unwrap_or(Meaning::Unexpected)
}

/// [`told`] for every request by its index; types of messages are ASCII.
#[expect(clippy::indexing_slicing, reason = "the compiler runs it")]
const MEANINGS: [[Meaning; 128]; Request::ALL.len()] = {
    let mut table = [[Meaning::Unexpected; 128]; Request::ALL.len()];
    let mut tag = 0_u8;
    let mut column = 0;
    while column < 128 {
        let mut row = 0;
        while row < Request::ALL.len() {
            table[row][column] = told(Request::ALL[row], tag);
            row += 1;
        }
        tag += 1;
        column += 1;
    }
    table
};

const fn told(owed: Request, tag: u8) -> Meaning {
    match (owed, tag) {
        (_, b'N' | b'S') => Meaning::Asynchronous,
        (_, b'A') => Meaning::Notification,
        (_, b'E') => Meaning::Error,
        (Request::Query | Request::FunctionCall | Request::Sync, b'Z') => Meaning::Ready,
        (Request::Query | Request::FunctionCall | Request::Execute, b'G' | b'W') => Meaning::CopyBegins,
        (Request::Query, b'T' | b'D' | b'C' | b'I' | b'H' | b'd' | b'c')
        | (Request::FunctionCall, b'V')
        | (Request::Execute, b'D' | b'H' | b'd' | b'c')
        | (Request::DescribeStatement, b't') => Meaning::Part,
        (Request::Execute, b'C' | b's' | b'I')
        | (Request::Parse, b'1')
        | (Request::Bind, b'2')
        | (Request::Close, b'3')
        | (Request::DescribeStatement | Request::DescribePortal, b'T' | b'n') => Meaning::Final,
        _ => Meaning::Unexpected,
    }
}

#[cfg(test)]
mod tests;
