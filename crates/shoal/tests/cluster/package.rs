//! The Debian package: what it holds, what its scripts do, and whether the node that it brings serves.

use crate::local::{Background, run_line_in, until};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs the package in a copy of this machine's file system, in namespaces of its own, lets its node serve as the user of
/// the service, and removes it. Whether that can be done at all is the first line that it prints.
const INSTALLATION: &str = r#"
set -e
mount -t tmpfs none "$FOLDER"
mkdir "$FOLDER/up" "$FOLDER/work" "$FOLDER/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$FOLDER/up,workdir=$FOLDER/work" "$FOLDER/root"
mount -t proc proc "$FOLDER/root/proc"
mount --rbind /dev "$FOLDER/root/dev"
mount -t tmpfs none "$FOLDER/root/run"
cp "$PACKAGE" "$FOLDER/root/run/shoal.deb"
ip link set lo up
chroot "$FOLDER/root" dpkg --dry-run --install /run/shoal.deb > /dev/null
echo possible
exec chroot "$FOLDER/root" sh -ec '
    dpkg --install /run/shoal.deb > /dev/null
    stat --format "%n %U %a" /etc/shoal/secret /var/lib/shoal /etc/shoal/node.toml
    setpriv --reuid=shoal --regid=shoal --clear-groups shoal serve --config /etc/shoal/node.toml 2> /run/log &
    until shoal status --connect 127.0.0.1:7000 --cluster shoal > /run/status 2>&1; do
        sleep 0.1
        kill -0 $! || { cat /run/log; exit 1; }
    done
    shoal tables create kv --connect 127.0.0.1:7000 --cluster shoal
    shoal put kv alice "i64(100)" --connect 127.0.0.1:7000 --cluster shoal
    grep "leads S0" /run/status
    kill $!
    wait
    secret=$(cat /etc/shoal/secret)
    dpkg --install /run/shoal.deb > /dev/null
    test "$secret" = "$(cat /etc/shoal/secret)" && echo kept
    dpkg --remove shoal > /dev/null
    test -e /var/lib/shoal && test -e /etc/shoal/secret && ! test -e /usr/bin/shoal && echo removed
    dpkg --purge shoal > /dev/null
    ! test -e /var/lib/shoal && ! test -e /etc/shoal && echo purged
'
"#;

/// Whether the system has this program.
fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|it| it.status.success())
}

/// Packs the command of this build.
fn pack(folder: &Path) -> Option<PathBuf> {
    if !has("dpkg-deb") || !has("strip") {
        eprintln!("no package is built here: dpkg-deb and strip are needed");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../package");
    let output = Command::new(script)
        .args(["--binary", env!("CARGO_BIN_EXE_shoal"), "--folder"])
        .arg(folder)
        // Compressing takes most of the time.
        .envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")])
        .output()
        .expect("started");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(PathBuf::from(said.trim()))
}

/// Runs a command that has to succeed.
fn run(folder: &Path, line: &str) -> String {
    let (code, said, error) = run_line_in(folder, line);
    assert_eq!(code, Some(0), "{line}:\n{said}\n{error}");
    said
}

#[test]
fn the_package_holds_what_a_machine_needs_and_its_node_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let Some(package) = pack(folder) else { return };
    let package = package.display();
    run(
        folder,
        &format!("dpkg-deb --extract {package} root && dpkg-deb --control {package} control"),
    );
    for file in [
        "usr/bin/shoal",
        "usr/lib/systemd/system/shoal.service",
        "usr/share/man/man1/shoal.1.gz",
        "usr/share/man/man1/shoal-serve.1.gz",
        "usr/share/bash-completion/completions/shoal",
        "usr/share/zsh/vendor-completions/_shoal",
        "usr/share/fish/vendor_completions.d/shoal.fish",
        "usr/share/doc/shoal/copyright",
        "usr/share/doc/shoal/changelog.gz",
        "usr/share/doc/shoal/CHANGELOG.md.gz",
        "usr/share/doc/shoal/operating.md",
        "usr/share/doc/shoal/grafana.json",
    ] {
        let length = fs::metadata(folder.join("root").join(file)).map(|it| it.len());
        assert!(length.is_ok_and(|length| length > 100), "{file}");
    }
    run(folder, "cd root && md5sum --quiet --check ../control/md5sums");
    run(
        folder,
        "for script in postinst prerm postrm; do sh -n control/$script && test -x control/$script; done",
    );
    let control = fs::read_to_string(folder.join("control/control")).expect("control");
    assert!(!control.contains('@') || control.matches('@').count() == 1, "one address: {control}");
    let version = format!("\nVersion: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(control.contains(&version) && control.contains("libc6 (>= 2."), "{control}");
    let settings = fs::read_to_string(folder.join("control/conffiles")).expect("conffiles");
    assert_eq!(settings, "/etc/shoal/node.toml\n/etc/shoal/topology.toml\n");
    if has("lintian") {
        run(folder, &format!("lintian --allow-root --fail-on error,warning {package}"));
    }
    if has("systemd-analyze") {
        let unit = "root/usr/lib/systemd/system/shoal.service";
        run(folder, &format!("systemd-analyze security --offline=true --threshold=20 {unit}"));
    }

    // The node of the shipped configuration, with a folder and a port that are free here.
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = held.local_addr().expect("bound").to_string();
    drop(held);
    let etc = folder.join("root/etc/shoal");
    let change = |file: &str, from: &str, to: &str| {
        let text = fs::read_to_string(etc.join(file)).expect("a file");
        assert!(text.contains(from), "{text}");
        fs::write(etc.join(file), text.replace(from, to)).expect("written");
    };
    change("node.toml", "\"/var/lib/shoal\"", "\"data\"");
    change("node.toml", "127.0.0.1:9100", "127.0.0.1:0");
    change("topology.toml", "127.0.0.1:7000", &address);
    run(&etc, "mkdir data && (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' > secret)");
    let node = Background::start(&etc, "../../usr/bin/shoal serve --config node.toml 2> log");
    let reach = format!("--connect {address} --cluster shoal");
    until("it serves", || run_line_in(&etc, &format!("shoal status {reach}")).0 == Some(0));
    run(&etc, &format!("shoal tables create kv {reach}"));
    run(&etc, &format!("shoal put kv alice 'i64(100)' {reach}"));
    assert_eq!(run(&etc, &format!("shoal get kv alice {reach}")), "i64(100)\n");
    drop(node);
}

#[test]
fn the_package_is_installed_upgraded_removed_and_purged() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(package) = pack(folder.path()) else { return };
    let stage = tempfile::tempdir().expect("a folder");
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", INSTALLATION])
        .env("FOLDER", stage.path())
        .env("PACKAGE", package)
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    let Some(said) = said.strip_prefix("possible\n") else {
        eprintln!("nothing can be installed in namespaces here: {error}");
        return;
    };
    assert!(output.status.success(), "{said}\n{error}");
    let expected = [
        "/etc/shoal/secret shoal 600",
        "/var/lib/shoal shoal 700",
        "/etc/shoal/node.toml root 644",
        "1 row written",
        "leads S0",
        "kept",
        "removed",
        "purged",
    ];
    let mut lines = said.lines();
    for words in expected {
        assert!(lines.any(|line| line.contains(words)), "{words}:\n{said}\n{error}");
    }
}
