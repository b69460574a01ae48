//! The recovery of the managers after the loss of a majority: the manager here asks all nodes for their state, and
//! begins another generation alone. Its safety is argued in `cluster/src/manager/recovery.rs`.
//!
//! ```text
//!  operator ── CheckRecovery ──►  ask all nodes                    ──► what would be lost
//!  operator ── RecoverManagers ─► ask all nodes, which pledge      ──► another log, with this member only
//! ```
//! The node stays up: its memory may hold all that is left of a shard.
//!
//! While the managers have a majority the recovery is refused, unless a node has pledged: a recovery that stopped
//! half-way leaves nodes that accept nothing from their managers, even if all of them return, and only another recovery
//! helps. So where there is a majority, nodes are asked first without a pledge. It is also refused if it would cost
//! more than the operator was shown.

use super::inbox::ManagerInbox;
use super::operator::{OperatorRefusal, RecoveryStage, ToOperator};
use super::recovery::{AcceptedRecovery, ManagerRecovery};
use crate::envelope::Envelope;
use shoal_cluster::manager::{Generation, NotRecovered, StateMachine, ToNode};
use shoal_raft::{LogMember, Stopped};
use shoal_types::NodeId;

impl ManagerInbox {
    /// Goes on with the recovery of the managers from the one on this node; if nothing is accepted, returns
    /// what would be left.
    pub(super) async fn recover(
        &mut self,
        accepted: Option<AcceptedRecovery>,
    ) -> Result<ToOperator, Stopped> {
        let number = accepted.as_ref().map(|accepted| accepted.number);
        if let Some((done, managers)) = &self.recovered
            && number == Some(*done)
        {
            return Ok(ToOperator::Done { managers: managers.clone() });
        }
        let Some(manager_host) = &mut self.manager_host else {
            let managers = self.shared_status.known().nodes().into_iter().collect();
            return Ok(ToOperator::Refused(OperatorRefusal::NotManager { managers }));
        };
        let (now, me, nodes) = (self.clock.now(), self.plan.node, self.topology.nodes().len());
        let has_majority = manager_host.has_majority();
        if !self.recovery.as_mut().is_some_and(|recovery| recovery.goes_on(number, now)) {
            let version = manager_host.log.status().entries.max(self.shared_status.version());
            let known = manager_host.machine().configuration().generation.max(Generation(version));
            let pledges = number.is_some() && !has_majority;
            self.recovery = Some(ManagerRecovery::new(number, pledges, known.next(me), nodes, now));
        }
        let Some(recovery) = self.recovery.take_if(|it| it.number == number && it.is_over(now))
        else {
            return Ok(self.ask_nodes());
        };
        if has_majority && !recovery.is_pledged(manager_host.machine()) {
            return Ok(ToOperator::Refused(OperatorRefusal::MajorityLives));
        }
        let Some(accepted) = accepted else {
            let refused =
                |why: NotRecovered| ToOperator::Refused(OperatorRefusal::Failed(why.to_string()));
            let remembered = recovery.remembered(manager_host.machine());
            return Ok(remembered.map_or_else(refused, ToOperator::MayRecover));
        };
        if !recovery.pledges {
            self.recovery = Some(recovery.with_pledges(now, me));
            return Ok(self.ask_nodes());
        }
        match recovery.machine(manager_host.machine(), &accepted) {
            Ok(machine) => self.begin_generation(accepted.number, recovery.version, &machine).await,
            Err(why) => Ok(ToOperator::Refused(why)),
        }
    }

    /// Asks the nodes that have not answered.
    fn ask_nodes(&self) -> ToOperator {
        let (Some(manager_host), Some(asking)) = (&self.manager_host, &self.recovery) else {
            return ToOperator::NotLeading { leader: None };
        };
        let (generation, pledges) = (asking.generation, asking.pledges);
        asking
            .missing()
            .for_each(|node| manager_host.tell(node, ToNode::Recall { generation, pledges }));
        ToOperator::UnderWay(RecoveryStage::Asking {
            answered: asking.answered(),
            of: asking.nodes as u64,
        })
    }

    /// Begins a generation of this manager alone, with this machine.
    async fn begin_generation(
        &mut self,
        number: u64,
        version: u64,
        machine: &StateMachine,
    ) -> Result<ToOperator, Stopped> {
        let node = self.plan.node;
        let manager_client = LogMember { node, volume: self.draw_volume() };
        let entries =
            self.manager_host.as_ref().map_or(0, |manager_host| manager_host.log.status().entries);
        let version = version.max(entries).max(self.shared_status.version());
        let begun = self.folder.begin_log(manager_client, machine, version);
        let (storage, members) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let why = format!(
                    "its log cannot be written: {error}; nodes have pledged, and are not served before it is done: make \
                     room, and ask again"
                );
                return Ok(ToOperator::Refused(OperatorRefusal::Failed(why)));
            }
        };
        let configuration = machine.configuration();
        tracing::warn!(
            %node, generation = configuration.generation.count(), epoch = %configuration.epoch,
            "the managers' majority is lost, and that is accepted: this one goes on alone"
        );
        self.close().await;
        self.open(storage).await?;
        self.follow().await;
        for other in self.topology.members().filter(|other| other.id != node) {
            self.rpc.send(other.id, &Envelope::Members(members.clone()));
        }
        let managers: Vec<NodeId> = members.nodes().into_iter().collect();
        self.recovered = Some((number, managers.clone()));
        Ok(ToOperator::Done { managers })
    }
}
