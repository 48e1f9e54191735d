//! Clients and servers around the session machine, moved by hand as the shell in `client.rs` and `relay.rs` does it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use causeway_pool::Books;
use causeway_protocol::backend::TransactionStatus;
use causeway_protocol::encode;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::Level;
use causeway_routing::cache::{CacheLimits, StatementCache};
use causeway_routing::catalogue::{Catalogue, CatalogueBuilder};
use causeway_routing::classify::Limits;
use causeway_routing::fingerprint::Key;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::notation;
use crate::config::PoolMode;
use crate::metrics::ProcessMetrics;
use crate::refusals::Refusals;
use crate::session::answer::ServerFault;
use crate::session::finish::{Connection, Ended};
use crate::session::settings::SessionSettings;
use crate::session::statements::StatementRegistry;
use crate::session::{Admitted, Lookups, Outcome, Session};

/// A server connection.
pub(super) struct Server {
    pub(super) books: Books,
    pub(super) standby: bool,
    /// What its settings are, for the session that asks.
    pub(super) settings: BTreeMap<String, String>,
    /// What has arrived from it.
    inbound: Vec<u8>,
    /// What is on its way to it, if [`Rig::wired`].
    pub(super) wire: Vec<u8>,
}

/// A client and what the proxy has in hand for it.
pub(super) struct Peer {
    pub(super) session: Session,
    inbound: Vec<u8>,
    answer: Vec<u8>,
    pub(super) to_client: Vec<u8>,
    pub(super) to_server: Vec<u8>,
    /// The server connection it has.
    pub(super) held: Option<usize>,
    running: bool,
    /// The unit has been answered, but a message of which the server has the beginning is still to be completed.
    unit_over: bool,
    /// How the last unit ended.
    pub(super) ended: Option<Ended>,
    /// Why the session is over.
    pub(super) over: Option<Over>,
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum Over {
    Terminated,
    Report(ErrorReport),
    Told,
    SettingsRefused,
    Fault(ServerFault),
}

/// All of it.
pub(super) struct Rig {
    classifier: Mutex<StatementCache>,
    registry: StatementRegistry,
    refusals: Refusals,
    metrics: ProcessMetrics,
    pub(super) catalogue: Option<Catalogue>,
    pub(super) peers: Vec<Peer>,
    pub(super) servers: Vec<Server>,
    /// The client that acts.
    pub(super) acting: usize,
    /// The server connection that the next checkout gives.
    pub(super) next: usize,
    /// The next checkout fails.
    pub(super) refuse_next: bool,
    /// Attempts given up; the value of `reusable` of each.
    pub(super) retries: Vec<bool>,
    /// Server connections that were of no further use, and were replaced.
    pub(super) discarded: Vec<usize>,
    /// What is sent to servers goes on their wires, and checkouts give any connection that fits, as this decides.
    pub(super) wired: Option<StdRng>,
}

// === impl Peer ===

impl Peer {
    /// A client that has asked for these settings at login, and was told so.
    pub(super) fn new(mode: PoolMode, settings: &[(&str, &str)]) -> Self {
        // Every greeting has a time zone in it.
        let told =
            [("TimeZone", "")].iter().filter(|(name, _)| settings.iter().all(|(other, _)| name != other));
        let told = told.chain(settings).map(|(name, value)| (Box::from(*name), Box::from(value.as_bytes())));
        let told = told.collect();
        let settings = SessionSettings::new(settings.iter().copied());
        Self {
            session: Session::new(mode, settings, told),
            inbound: Vec::new(),
            answer: Vec::new(),
            to_client: Vec::new(),
            to_server: Vec::new(),
            held: None,
            running: false,
            unit_over: false,
            ended: None,
            over: None,
        }
    }

    fn show_answer(&mut self) {
        self.to_client.append(&mut self.answer);
    }
}

// === impl Server ===

impl Server {
    pub(super) fn new(limit: usize, standby: bool) -> Self {
        Self {
            books: Books::new(limit),
            standby,
            settings: BTreeMap::new(),
            inbound: Vec::new(),
            wire: Vec::new(),
        }
    }
}

// === impl Rig ===

impl Rig {
    /// Two clients in transaction mode; two connections to a primary, and one to a standby (server 2).
    pub(super) fn new() -> Self {
        let peer = || Peer::new(PoolMode::Transaction, &[]);
        Self::of(vec![peer(), peer()], [false, false, true].map(|standby| Server::new(100, standby)).into())
    }

    pub(super) fn of(peers: Vec<Peer>, servers: Vec<Server>) -> Self {
        let cache = StatementCache::new(CacheLimits::default(), Limits::default(), Key([7; 16]));
        Self {
            classifier: Mutex::new(cache),
            registry: StatementRegistry::default(),
            refusals: Refusals::default(),
            metrics: ProcessMetrics::default(),
            catalogue: Some(CatalogueBuilder::new().build()),
            peers,
            servers,
            acting: 0,
            next: 0,
            refuse_next: false,
            retries: Vec::new(),
            discarded: Vec::new(),
            wired: None,
        }
    }

    /// One client whose session started with these settings.
    pub(super) fn with_settings(settings: &[(&str, &str)]) -> Self {
        let mut rig = Self::new();
        rig.peers[0] = Peer::new(PoolMode::Transaction, settings);
        rig
    }

    pub(super) fn peer(&mut self) -> &mut Peer {
        &mut self.peers[self.acting]
    }

    pub(super) fn session(&mut self) -> &mut Session {
        &mut self.peers[self.acting].session
    }

    pub(super) fn is_running(&self) -> bool {
        self.peers[self.acting].running
    }

    /// The client sends something.
    pub(super) fn client(&mut self, bytes: &[u8]) {
        self.peer().inbound.extend_from_slice(bytes);
        self.pump();
    }

    /// The server at hand sends something.
    pub(super) fn server(&mut self, bytes: &[u8]) {
        let server = self.peer().held.expect("a server connection at hand");
        self.servers[server].inbound.extend_from_slice(bytes);
        self.take_server(server);
        self.pump();
    }

    /// Deals with what has arrived from the client until nothing more comes of it.
    fn pump(&mut self) {
        while self.peer().over.is_none() && self.step() {}
        self.send();
    }

    fn step(&mut self) -> bool {
        let peer = &mut self.peers[self.acting];
        let lookups = Lookups {
            classifier: &self.classifier,
            registry: &self.registry,
            refusals: &self.refusals,
            catalogue: self.catalogue.as_ref(),
            defined_lately: false,
            level: Level::Cluster,
            metrics: &self.metrics,
        };
        if peer.running {
            return self.take_client();
        }
        match peer.session.admit(&peer.inbound, &lookups, &mut peer.answer) {
            Err(report) => peer.over = Some(Over::Report(report)),
            Ok(Admitted::NeedMore) => return false,
            Ok(Admitted::Terminate) => peer.over = Some(Over::Terminated),
            Ok(Admitted::Local(consumed) | Admitted::Fence(consumed)) => {
                peer.inbound.drain(..consumed);
                peer.show_answer();
            }
            Ok(Admitted::Ready) => self.checkout(),
        }
        true
    }

    fn checkout(&mut self) {
        let (next, refused) = (self.pick(), std::mem::take(&mut self.refuse_next));
        let peer = &mut self.peers[self.acting];
        if peer.held.is_none() {
            if refused {
                let report = ErrorReport::error(SqlState::TOO_MANY_CONNECTIONS, "refused");
                let consumed = peer.session.refuse(&report, peer.inbound.len(), &mut peer.answer);
                peer.inbound.drain(..consumed);
                peer.show_answer();
                return;
            }
            peer.held = Some(next);
        }
        self.relay();
    }

    /// The server connection for a checkout.
    fn pick(&mut self) -> usize {
        let replica = self.session().demand().replica;
        let held: Vec<usize> = self.peers.iter().filter_map(|peer| peer.held).collect();
        let Some(random) = &mut self.wired else { return self.next };
        let fits = |at: &usize| !held.contains(at) && (replica || !self.servers[*at].standby);
        let fitting: Vec<usize> = (0..self.servers.len()).filter(fits).collect();
        *fitting.choose(random).expect("a connection that fits")
    }

    /// Puts what the acting client's server is to get on its wire.
    fn send(&mut self) {
        let peer = &mut self.peers[self.acting];
        if let (Some(held), Some(_)) = (peer.held, &self.wired) {
            self.servers[held].wire.append(&mut peer.to_server);
        }
    }

    fn replace(&mut self, at: usize) {
        let limit = self.servers[at].books.statements.limit();
        self.servers[at] = Server::new(limit, self.servers[at].standby);
        self.discarded.push(at);
    }

    /// Sends the gathered unit to the server at hand.
    fn relay(&mut self) {
        let peer = &mut self.peers[self.acting];
        let server = &mut self.servers[peer.held.expect("a server connection at hand")];
        peer.running = true;
        peer.session.begin(&mut server.books, server.standby, &mut peer.to_server);
        self.send_admitted();
    }

    fn send_admitted(&mut self) {
        let peer = &mut self.peers[self.acting];
        let server = &mut self.servers[peer.held.expect("a server connection at hand")];
        peer.session.emit(&peer.inbound, &mut server.books, &mut peer.to_server, &mut peer.answer);
        self.release();
    }

    fn release(&mut self) {
        let peer = self.peer();
        let released = peer.session.release(peer.inbound.len());
        peer.inbound.drain(..released);
        if !peer.session.may_retry() {
            peer.show_answer();
        }
    }

    /// The client has sent something while its unit runs; says whether that came to anything.
    fn take_client(&mut self) -> bool {
        let peer = &mut self.peers[self.acting];
        let passed = peer.session.pass_rest(&peer.inbound, &mut peer.to_server);
        peer.inbound.drain(..passed);
        if peer.unit_over {
            if !peer.session.is_passing() {
                let held = peer.held.expect("a server connection at hand");
                self.finish(held);
            }
            return passed > 0;
        }
        if peer.session.unit_closed() {
            if peer.session.may_retry() {
                return passed > 0;
            }
            match peer.session.pass_copy(&peer.inbound, &mut peer.to_server) {
                Ok(copied) => {
                    peer.inbound.drain(..copied);
                    return passed + copied > 0;
                }
                Err(report) => peer.over = Some(Over::Report(report)),
            }
            return true;
        }
        if peer.session.is_passing() {
            return passed > 0;
        }
        let before = peer.inbound.len();
        let lookups = Lookups {
            classifier: &self.classifier,
            registry: &self.registry,
            refusals: &self.refusals,
            catalogue: self.catalogue.as_ref(),
            defined_lately: false,
            level: Level::Cluster,
            metrics: &self.metrics,
        };
        match peer.session.admit(&peer.inbound, &lookups, &mut peer.answer) {
            Err(report) => peer.over = Some(Over::Report(report)),
            Ok(Admitted::Terminate) => peer.over = Some(Over::Terminated),
            Ok(Admitted::Local(consumed) | Admitted::Fence(consumed)) => {
                peer.inbound.drain(..consumed);
            }
            Ok(Admitted::NeedMore | Admitted::Ready) => {
                self.send_admitted();
            }
        }
        self.peer().inbound.len() < before
    }

    fn take_server(&mut self, at: usize) {
        let (peer, server) = (&mut self.peers[self.acting], &mut self.servers[at]);
        let scan = match peer.session.answer(&server.inbound, &mut server.books, &mut peer.answer) {
            Ok(scan) => scan,
            Err(fault) => {
                peer.over = Some(Over::Fault(fault));
                return;
            }
        };
        peer.session.take_reported();
        if !peer.session.may_retry() {
            peer.show_answer();
        }
        peer.to_client.extend_from_slice(&server.inbound[scan.direct]);
        server.inbound.drain(..scan.consumed);
        self.release();
        let peer_is_passing = self.peer().session.is_passing();
        match scan.outcome {
            Outcome::More => {}
            Outcome::Done if peer_is_passing => self.peer().unit_over = true,
            Outcome::Done => self.finish(at),
            Outcome::Retry { reusable, .. } => {
                self.retries.push(reusable);
                self.give_up_attempt(reusable);
            }
            Outcome::Fatal => self.peer().over = Some(Over::Told),
            Outcome::SettingsRefused => self.peer().over = Some(Over::SettingsRefused),
        }
    }

    fn finish(&mut self, at: usize) {
        self.send();
        let peer = &mut self.peers[self.acting];
        let ended = peer.session.finish(&mut self.servers[at].books);
        peer.show_answer();
        (peer.running, peer.unit_over) = (false, false);
        if self.peer().session.has_questions() {
            return self.inquire(at, ended);
        }
        if ended.connection == Connection::Discard {
            self.replace(at);
        }
        if ended.connection == Connection::CheckIn && self.wired.is_some() {
            assert!(self.servers[at].inbound.is_empty(), "answers are left over for the next client");
        }
        let peer = &mut self.peers[self.acting];
        if ended.connection != Connection::Keep {
            peer.held = None;
        }
        peer.ended = Some(ended);
    }

    /// The server is asked what the session has left, and answers that all it is known for is still there.
    fn inquire(&mut self, at: usize, mut ended: Ended) {
        let (peer, server) = (&mut self.peers[self.acting], &mut self.servers[at]);
        let session = &mut peer.session;
        session.inquire(&mut Vec::new());
        let (reasons, names) = session.asked();
        let is_there = |reason| if session.pins().contains(reason) { "t" } else { "f" };
        let values = reasons.into_iter().map(|reason| Some(is_there(reason).as_bytes()));
        let values =
            values.chain(names.iter().map(|name| server.settings.get(&**name).map(String::as_bytes)));
        let (mut answer, mut shown) = (Vec::new(), Vec::new());
        encode::data_row(&mut answer, values.collect::<Vec<_>>());
        encode::command_complete(&mut answer, b"SELECT 1");
        encode::ready_for_query(&mut answer, TransactionStatus::Idle);
        let scan = session.answer(&answer, &mut server.books, &mut shown).expect("an answer");
        assert!(scan.outcome == Outcome::Done && scan.direct.is_empty() && shown.is_empty());
        let settled = session.settle(&mut server.books);
        match settled.connection {
            Connection::Keep => {}
            Connection::CheckIn => peer.held = None,
            Connection::Discard => {
                peer.held = None;
                self.replace(at);
            }
        }
        ended.pinned = ended.pinned.or(settled.pinned);
        self.peer().ended = Some(ended);
    }

    /// The server cannot serve the unit; it runs again on the next one.
    pub(super) fn give_up_attempt(&mut self, reusable: bool) {
        let peer = self.peer();
        peer.answer.clear();
        peer.to_server.clear();
        peer.session.retry();
        let failed = peer.held.take().expect("a server connection at hand");
        if !reusable {
            self.replace(failed);
        }
        // Not the one that has just failed, nor another standby.
        let next = loop {
            let next = self.pick();
            if self.wired.is_none() || !self.servers[next].standby {
                break next;
            }
        };
        self.peer().held = Some(next);
        self.relay();
    }

    /// Plays an exchange, one step a line:
    ///
    /// `> ..` the client sends, `= ..` that is what the server gets, `< ..` the server sends, `: ..` that is what the
    /// client gets; `on n` names the server connection of the next checkout, `as n` the client that acts from now
    /// on, `held` and `free` say whether it has a server connection, `refuse` lets its next checkout fail. Nothing
    /// may come out that is not listed.
    pub(super) fn play(&mut self, script: &str) {
        for (n, line) in script.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty()) {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let place = || format!("line {n}: {line}");
            match verb {
                "=" => assert_eq!(
                    notation::to_server(&std::mem::take(&mut self.peer().to_server)),
                    rest,
                    "{}",
                    place()
                ),
                ":" => assert_eq!(
                    notation::to_client(&std::mem::take(&mut self.peer().to_client)),
                    rest,
                    "{}",
                    place()
                ),
                ">" => {
                    self.expect_silence(&place());
                    self.client(&notation::from_client(rest));
                }
                "<" => {
                    self.expect_silence(&place());
                    self.server(&notation::from_server(rest));
                }
                "on" => self.next = rest.parse().expect("a server"),
                "as" => {
                    self.expect_silence(&place());
                    self.acting = rest.parse().expect("a client");
                }
                "held" => assert!(self.peer().held.is_some() && !self.is_running(), "{}", place()),
                "free" => assert!(self.peer().held.is_none(), "{}", place()),
                "refuse" => self.refuse_next = true,
                _ => panic!("{}", place()),
            }
        }
        self.expect_silence("the end");
    }

    fn expect_silence(&mut self, place: &str) {
        let peer = self.peer();
        assert_eq!(notation::to_server(&peer.to_server), "", "sent to the server before {place}");
        assert_eq!(notation::to_client(&peer.to_client), "", "sent to the client before {place}");
    }
}
