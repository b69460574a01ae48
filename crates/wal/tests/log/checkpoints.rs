//! Checkpoints: whole after any crash, or not there.

use crate::testbed::{IDENTITY, Traced};
use shoal_types::NodeId;
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    CheckpointHead, CheckpointWriter, Folder, LogError, LogIdentity, checkpoint_name, checkpoints,
    read_checkpoint, remove_unfinished,
};

type Blocks = Vec<(u8, Vec<u8>)>;

fn blocks(number: u64) -> Blocks {
    (0..4).map(|block| (block, vec![number as u8; 300 * usize::from(block)])).collect()
}

fn write(folder: &mut impl Folder, number: u64) {
    let head = CheckpointHead { identity: IDENTITY, number, first: 2 * number };
    let mut writer = CheckpointWriter::begin(folder, head).unwrap();
    for (kind, payload) in blocks(number) {
        writer.block(folder, kind, &payload).unwrap();
    }
    let bytes = writer.finish(folder).unwrap();
    assert_eq!(bytes, folder.length(&checkpoint_name(number)).unwrap());
}

fn read(folder: &mut impl Folder, number: u64) -> Result<(CheckpointHead, Blocks), LogError> {
    let mut blocks = Blocks::new();
    let head = read_checkpoint(folder, number, Some(IDENTITY), &mut |kind, payload| {
        blocks.push((kind, payload.to_vec()));
        Ok(())
    })?;
    Ok((head, blocks))
}

#[test]
fn a_crash_in_any_step_leaves_the_former_ones_and_nothing_half() {
    let mut traced = Traced::default();
    write(&mut traced, 1);
    traced.states.clear();
    write(&mut traced, 2);
    let mut seen = [false; 2];
    traced.states.push(traced.disk);
    for state in traced.states {
        for subset in 0..1_u32 << state.unflushed().min(8) {
            let (mut crashed, mut at) = (state.clone(), 0);
            crashed.lose_power(|| {
                at += 1;
                subset >> (at - 1) & 1 == 1
            });
            let numbers = checkpoints(&mut crashed).unwrap();
            let is_second = numbers == [2, 1];
            assert!(is_second || numbers == [1], "{numbers:?}");
            seen[usize::from(is_second)] = true;
            for number in numbers {
                let head = CheckpointHead { identity: IDENTITY, number, first: 2 * number };
                assert_eq!(read(&mut crashed, number).unwrap(), (head, blocks(number)));
            }
        }
    }
    assert_eq!(seen, [true, true], "crashes before and after");
}

#[test]
fn what_was_not_completed_is_removed() {
    let mut disk = VirtualDisk::new();
    let head = CheckpointHead { identity: IDENTITY, number: 7, first: 1 };
    let mut writer = CheckpointWriter::begin(&mut disk, head).unwrap();
    writer.block(&mut disk, 0, b"x").unwrap();
    drop(writer);
    assert_eq!(checkpoints(&mut disk).unwrap(), []);
    remove_unfinished(&mut disk).unwrap();
    assert_eq!(disk.names().unwrap(), [""; 0]);
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let mut disk = VirtualDisk::new();
    write(&mut disk, 1);
    let name = checkpoint_name(1);
    let length = disk.length(&name).unwrap();
    for bit in 0..8 * length {
        let mut damaged = disk.clone();
        assert!(damaged.flip(&name, bit));
        let error = read(&mut damaged, 1).expect_err("damage is found");
        assert!(matches!(error, LogError::Damaged { .. }), "bit {bit}: {error}");
    }
    let mut bytes = vec![0; length as usize];
    disk.read(&name, 0, &mut bytes).unwrap();
    for cut in 0..length as usize {
        let mut shorter = VirtualDisk::new();
        shorter.create(&name).unwrap();
        shorter.write(&name, 0, &bytes[..cut]).unwrap();
        let error = read(&mut shorter, 1).expect_err("a cut is found");
        assert!(matches!(error, LogError::Damaged { .. }), "cut at {cut}: {error}");
    }
    disk.write(&name, length, b"more").unwrap();
    let error = read(&mut disk, 1).unwrap_err().to_string();
    assert!(error.ends_with("blocks are missing or left over"), "{error}");
}

#[test]
fn the_owner_and_the_name_are_checked() {
    let mut disk = VirtualDisk::new();
    write(&mut disk, 1);
    let other = LogIdentity { node: NodeId(9), ..IDENTITY };
    let error = read_checkpoint(&mut disk, 1, Some(other), &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(error, LogError::Foreign { what: "node", found: 3, expected: 9, .. }));
    disk.rename(&checkpoint_name(1), &checkpoint_name(2)).unwrap();
    let error = read(&mut disk, 2).unwrap_err().to_string();
    assert!(error.ends_with("it is the checkpoint of another number"), "{error}");
}

#[test]
fn what_the_owner_finds_wrong_has_its_place() {
    let mut disk = VirtualDisk::new();
    write(&mut disk, 1);
    let error = read_checkpoint(&mut disk, 1, None, &mut |kind, _| match kind {
        2 => Err("a row without a table"),
        _ => Ok(()),
    });
    let text = "checkpoint-000000000001 is damaged at byte 392: a row without a table";
    assert_eq!(error.unwrap_err().to_string(), text);
}
