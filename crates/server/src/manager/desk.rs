//! Where a node's letters to managers are read, whether it hosts one or not.

use super::change::{Change, Task, Wanted, Way};
use super::courier::Courier;
use super::folder::{Folder, Storage};
use super::found::Founder;
use super::operator::{FromOperator, Refusal, Stage, ToOperator};
use super::recovery::{Accepted, Recovery};
use super::site::Site;
use super::{Board, Letter, Plan};
use crate::envelope::{Answer, Envelope, Hosting, Question};
use crate::seat::Command;
use consensus::manager::{self, Ask, Assignment, Event, Machine, Mailbox, Manager, ToManager};
use net::Clock;
use raft::{Members, Refused, Stopped, Volume};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::wire::encode;
use types::{ClusterId, NodeId, ShardId, Time};

/// See the module.
pub(super) struct Desk {
    pub(super) plan: Plan,
    pub(super) folder: Folder,
    pub(super) board: Arc<Board>,
    pub(super) courier: Courier,
    pub(super) clock: Clock,
    /// The manager that is hosted here.
    pub(super) site: Option<Site>,
    /// Ends when it is dropped, with what is on its way.
    founding: Option<Task<()>>,
    change: Option<Change>,
    /// Nodes are asked what they remember of managers that are lost.
    pub(super) recovery: Option<Recovery>,
    /// The operator's number for the recovery that is done, and who the managers are since.
    pub(super) recovered: Option<(u64, Vec<NodeId>)>,
}

impl Desk {
    pub(super) fn new(mut plan: Plan, board: Arc<Board>, seats: net::Handle<Command>) -> Desk {
        let clock = board.clock;
        let courier = Courier::new(seats, clock, plan.random.next_u64());
        let folder = Folder(plan.data.clone());
        Desk {
            plan,
            folder,
            board,
            courier,
            clock,
            site: None,
            founding: None,
            change: None,
            recovery: None,
            recovered: None,
        }
    }

    /// Works until the node has ended; with a manager from the beginning, if there is storage for it.
    pub(super) async fn work(
        &mut self,
        storage: Option<Storage>,
        letters: &mut mpsc::Receiver<Letter>,
    ) -> Result<(), Stopped> {
        if let Some(storage) = storage {
            self.open(storage).await?;
            self.found();
        }
        loop {
            let left = self.site.as_ref().and_then(Site::left);
            tokio::select! {
                letter = letters.recv() => match letter {
                    Some(letter) => self.read(letter).await?,
                    None => return Ok(()),
                },
                () = news(self.site.as_mut()) => {
                    self.with_site(Site::exchange)?;
                    self.listen()?;
                }
                () = sleep(left) => {
                    self.listen()?;
                    self.with_site(|site| site.step(Event::Timer))?;
                }
            }
            if self.courier.is_stopped() {
                return Ok(());
            }
            self.follow().await;
        }
    }

    /// Ends the manager that is hosted here.
    pub(super) async fn close(&mut self) {
        (self.founding, self.change) = (None, None);
        self.board.close();
        if let Some(site) = self.site.take() {
            site.log.stop().await;
        }
    }

    pub(super) async fn open(&mut self, storage: Storage) -> Result<(), Stopped> {
        let new = self.draw_volume();
        let (node, options) = (self.plan.node, &self.plan.log);
        let courier = self.courier.clone();
        let machine = Machine::new(Arc::clone(&self.plan.topology), self.plan.options.clone());
        let first = machine.clone();
        let replica = match storage {
            Storage::Disk(disk) => raft::start(node, new, options, first, disk, courier).await?,
            Storage::Memory(memory) => {
                raft::start(node, new, options, first, memory, courier).await?
            }
        };
        let drawn = ClusterId::draw(&mut self.plan.random);
        let manager = Manager::new(Mailbox::default(), machine, drawn);
        let mut site = Site::new(manager, replica, self.courier.clone(), self.clock);
        tracing::info!(member = %site.log.me(), "a manager is hosted here");
        self.board.state().log = Some(site.log.clone());
        site.step(Event::Timer)?;
        self.site = Some(site);
        Ok(())
    }

    pub(super) fn draw_volume(&mut self) -> Volume {
        Volume(self.plan.random.next_u64() as u32)
    }

    /// The first of the named managers begins the cluster, if there is none.
    fn found(&mut self) {
        let node = self.plan.node;
        let Some(site) = &self.site else { return };
        if self.board.named.iter().min() != Some(&node) {
            return;
        }
        let nodes = self.plan.topology.nodes().iter().map(|other| other.id);
        let founder = Founder {
            log: site.log.clone(),
            courier: self.courier.clone(),
            board: Arc::clone(&self.board),
            others: nodes.filter(|other| *other != node).collect(),
            patience: self.patience(),
        };
        self.founding = Some(Task(tokio::spawn(founder.found())));
    }

    /// So long an answer of another desk may take, which may have to make a file.
    fn patience(&self) -> Duration {
        2 * self.plan.log.heartbeat
    }

    fn with_site(
        &mut self,
        work: impl FnOnce(&mut Site) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        self.site.as_mut().map_or(Ok(()), work)
    }

    /// The manager here hears who has shown itself, if it leads; perhaps it will, when its first command is applied.
    fn listen(&mut self) -> Result<(), Stopped> {
        let lease = self.plan.options.lease.as_nanos() as u64;
        let since = Time(self.clock.now().0.saturating_sub(lease));
        let Some(site) = self.site.as_mut().filter(|site| site.leads()) else { return Ok(()) };
        let heartbeats = self.board.state().take_heartbeats(since);
        let events = heartbeats.into_iter();
        site.steps(events.map(|(from, (at, message))| Event::Received { from, at, message }))
    }

    async fn read(&mut self, letter: Letter) -> Result<(), Stopped> {
        match letter {
            Letter::FromNode {
                from,
                version,
                message: ToManager::Recalled { generation, told },
            } => {
                if let Some(recovery) = &mut self.recovery {
                    let now = self.clock.now();
                    recovery.hear(now, (from, version), generation, told, self.plan.node);
                }
            }
            Letter::FromNode { from, version, message } => {
                self.correct(from, version);
                let at = self.clock.now();
                self.with_site(|site| site.step(Event::Received { from, at, message }))?;
            }
            Letter::Ask { from, number, question: Question::Log(request) } => {
                self.serve(from, number, request);
            }
            Letter::Ask { from, number, question: Question::Host { on_disk } } => {
                let answer = self.host(on_disk).await?;
                self.courier.send(from, &Envelope::Answer { number, answer });
            }
            Letter::Answer { from, number, answer } => self.courier.answered(from, number, answer),
            Letter::Members { from, members } => {
                let version = members.version;
                self.learn(members);
                self.correct(from, version);
            }
            Letter::Joined(cluster) => {
                if let Err(error) = self.folder.keep_cluster(cluster) {
                    tracing::warn!(node = %self.plan.node, %error, "which cluster this is is not written down");
                }
            }
            Letter::Operator { client, wanted } => {
                let told = match wanted.clone() {
                    FromOperator::ReplaceManager { outgoing, incoming } => {
                        self.change(Wanted::Replace { outgoing, incoming }).await
                    }
                    FromOperator::AddManagers { first, second } => {
                        self.change(Wanted::Add([first, second])).await
                    }
                    FromOperator::CheckRecovery => self.recover(None).await?,
                    FromOperator::RecoverManagers { number, silent, lost } => {
                        self.recover(Some(Accepted { number, silent, lost })).await?
                    }
                    FromOperator::CheckLoss { shard } => self.check_loss(shard),
                    FromOperator::AcceptLoss { shard, number, at_s } => {
                        self.accept_loss(shard, (number, at_s))?
                    }
                };
                tracing::info!(node = %self.plan.node, ?wanted, ?told, "an operator asks");
                self.courier.command(Command::Answer { client, frame: encode(&told) });
            }
        }
        Ok(())
    }

    /// Tells another desk who the managers are, if it knows less.
    fn correct(&self, other: NodeId, version: u64) {
        if version < self.board.version() && other != self.plan.node {
            self.courier.send(other, &Envelope::Members(self.board.known()));
        }
    }

    fn learn(&self, members: Members) {
        if !self.board.learn(members) {
            return;
        }
        let known = self.board.known();
        let (version, managers) = (known.version, known.nodes());
        tracing::info!(node = %self.plan.node, version, ?managers, "who the managers are");
        if let Err(error) = self.folder.keep(&known) {
            tracing::warn!(node = %self.plan.node, %error, "who the managers are is not written down");
        }
    }

    /// Learns what the log says of the managers, and ends the one here if it is none of them any more.
    pub(super) async fn follow(&mut self) {
        let Some(site) = &self.site else { return };
        if let Some(members) = site.log.members() {
            self.learn(members);
        }
        if site.log.is_dropped(&self.board.known()) {
            tracing::info!(member = %site.log.me(), "another manager has taken its place: it ends");
            self.close().await;
            // Should it not go, it is found again, and ends again.
            if let Err(error) = self.folder.drop_log(&self.board.known()) {
                tracing::warn!(node = %self.plan.node, %error, "its log is not set aside");
            }
        }
        if self.change.as_ref().is_some_and(|change| change.is_forgotten(self.clock.now())) {
            self.change = None;
        }
    }

    /// Lets the replica here answer that of another manager.
    fn serve(&self, from: NodeId, number: u64, request: bytes::Bytes) {
        let Some(site) = &self.site else { return };
        let (log, courier) = (site.log.clone(), self.courier.clone());
        // It may ask a volume that is lost on behalf of managers that are, too.
        let known = Some(self.board.known()).filter(|known| !known.nodes().contains(&from));
        tokio::spawn(async move {
            match log.serve(&request).await {
                Ok(response) => {
                    let answer = Answer::Log(response);
                    courier.send(from, &Envelope::Answer { number, answer });
                }
                Err(Refused::Misdirected { .. }) if let Some(known) = known => {
                    courier.send(from, &Envelope::Members(known));
                }
                // Of a lost volume, for as long as it is a member.
                Err(error) => tracing::debug!(%from, %error, "a manager is not answered"),
            }
        });
    }

    /// Hosts a manager, if none is here.
    async fn host(&mut self, on_disk: bool) -> Result<Answer, Stopped> {
        if on_disk && !self.folder.is_kept() {
            return Ok(Answer::InMemory);
        }
        if self.site.is_none() {
            let opened = match self.folder.log() {
                Ok(storage) => self.open(storage).await.map_err(|error| error.to_string()),
                Err(error) => Err(format!("it cannot make a log: {error}")),
            };
            if let Err(why) = opened {
                return Ok(Answer::CannotHost(why));
            }
        }
        let log = &self.site.as_ref().expect("it is open").log;
        let is_new = log.is_new().await? && self.board.version() == 0;
        Ok(Answer::Hosts(Hosting { volume: log.me().volume, is_new }))
    }

    /// The manager that is hosted here, if it leads.
    fn leading(&mut self) -> Result<&mut Site, ToOperator> {
        let Some(site) = &mut self.site else {
            return Err(ToOperator::NotLeading { leader: None });
        };
        match site.leads() {
            true => Ok(site),
            false => Err(ToOperator::NotLeading { leader: site.log.status().leader }),
        }
    }

    /// May the loss of a shard's majority be accepted, and what survives?
    fn check_loss(&mut self, shard: ShardId) -> ToOperator {
        let machine = match self.leading() {
            Ok(site) => site.machine(),
            Err(told) => return told,
        };
        if let Err(why) = machine.check_loss(shard) {
            return ToOperator::Refused(Refusal::Failed(why.to_string()));
        }
        let configuration = machine.configuration();
        let survivors = machine.survivors(shard);
        let holders = configuration.shard(shard).into_iter().flat_map(Assignment::holders);
        let aside = holders.filter(|node| !survivors.contains(node)).collect();
        let nodes = (0..).map(NodeId).zip(&configuration.nodes);
        let silent = nodes.filter(|(_, standing)| !standing.alive).map(|(node, _)| node).collect();
        ToOperator::MayLose { survivors, aside, silent }
    }

    /// Accepts the loss of a shard's majority, or says how far that is.
    fn accept_loss(
        &mut self,
        shard: ShardId,
        (number, at_s): (u64, u64),
    ) -> Result<ToOperator, Stopped> {
        let site = match self.leading() {
            Ok(site) => site,
            Err(told) => return Ok(told),
        };
        let assignment = site.machine().configuration().shard(shard);
        let loss = assignment.and_then(|assignment| assignment.loss.as_ref());
        if let Some(loss) = loss.filter(|loss| loss.number == number) {
            return Ok(ToOperator::Lost(loss.clone()));
        }
        if let Err(why) = site.machine().check_loss(shard) {
            return Ok(ToOperator::Refused(Refusal::Failed(why.to_string())));
        }
        let change = manager::Change::AcceptLoss { shard, number, at_s };
        site.step(Event::Asked { ask: Ask(number), change })?;
        Ok(ToOperator::UnderWay(Stage::Accepting))
    }

    /// Changes who the managers are, as far as that is to be done here.
    async fn change(&mut self, wanted: Wanted) -> ToOperator {
        let unknown = wanted.nodes().find(|node| self.plan.topology.node(*node).is_none());
        if let Some(node) = unknown {
            return ToOperator::Refused(Refusal::NoNode(node));
        }
        let Some(site) = &self.site else { return ToOperator::NotLeading { leader: None } };
        let (log, now) = (&site.log, self.clock.now());
        let status = log.status();
        if status.leader != Some(self.plan.node) {
            return ToOperator::NotLeading { leader: status.leader };
        }
        if let Some(change) = self.change.as_mut().filter(|it| it.is(wanted)) {
            let is_over = change.is_over();
            let told = change.ask(log, now).await;
            if is_over {
                self.change = None;
            }
            return told;
        }
        let members = log.members().filter(|members| members.version == status.members.version);
        // What is not committed yet may still be otherwise.
        let Some(members) = members else { return ToOperator::UnderWay(Stage::Voting) };
        if let Some(told) = wanted.foregone(&members) {
            return told;
        }
        let way = Way {
            log: log.clone(),
            courier: self.courier.clone(),
            patience: self.patience(),
            on_disk: self.folder.is_kept(),
        };
        self.change = Some(Change::begin(way, wanted, now));
        ToOperator::UnderWay(Stage::Reaching)
    }
}

/// Waits for news of the manager, if there is one.
async fn news(site: Option<&mut Site>) {
    match site {
        Some(site) => site.news().await,
        None => std::future::pending().await,
    }
}

/// Waits so long; for ever if there is nothing to wait for.
async fn sleep(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
