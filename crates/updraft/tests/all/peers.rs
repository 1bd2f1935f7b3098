//! Machines of one lab that fetch inputs from each other; bytes are counted at the interfaces.

use serde_json::Value;

use crate::network::in_namespace;
use crate::transfer::{Far, script};

/// Bytes that an interface in the manager's network has received and sent.
fn counters(far: &Far, interface: &str) -> (u64, u64) {
    let out = in_namespace(far.managers_network(), &["ip", "-s", "-j", "link", "show", interface])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&out.stdout).unwrap();
    let of = |way: &str| told[0]["stats64"][way]["bytes"].as_u64().unwrap();
    (of("rx"), of("tx"))
}

#[test]
fn machines_of_one_lab_fetch_from_each_other_and_others_from_the_manager() {
    let Some(mut far) = Far::on_hosts() else { return };
    // Three of a lab, of which one does not serve; and one of another lab.
    for (n, name, lab, serves) in
        [(2, "far2", "x", true), (3, "far3", "x", false), (4, "far4", "x", true), (5, "far5", "y", true)]
    {
        let config = far.sandbox.path().join(format!("{name}.conf"));
        let door = if serves { format!("PEER_ADDRESS = 10.79.0.{n}:7077\n") } else { String::new() };
        std::fs::write(&config, format!("Lab = \"{lab}\"\nSTARTD_ATTRS = Lab\n{door}")).unwrap();
        far.machine_with(name, 1, &["--config", &config.to_string_lossy()]);
    }
    let dir = far.directory("peers");
    let large: Vec<u8> = (0..24_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(dir.join("large"), &large).unwrap();
    script(&dir.join("job.sh"), "cmp large large && stat -c %s large");
    // What the manager sent, and what the first machine sent, while a job ran on this machine.
    let run_on = |machine: &str| {
        let before = (counters(&far, "bridge").1, counters(&far, "cable0").0);
        let cluster = far.submit(
            &dir,
            &format!(
                "executable = job.sh\noutput = {machine}.out\nshould_transfer_files = YES\ntransfer_input_files = large\n\
                 requirements = Machine == \"{machine}\"\nqueue\n"
            ),
        );
        far.wait_for(cluster, "JobExited", 1);
        assert_eq!(std::fs::read_to_string(dir.join(format!("{machine}.out"))).unwrap(), "24000000\n");
        (counters(&far, "bridge").1 - before.0, counters(&far, "cable0").0 - before.1)
    };
    let bytes = large.len() as u64;
    let (sent, _) = run_on("far2");
    assert!(sent > bytes, "nobody else has it: {sent}");
    let (sent, by_peer) = run_on("far3");
    assert!(sent < bytes / 10 && by_peer > bytes, "from its neighbour: {sent} and {by_peer}");
    let (sent, _) = run_on("far4");
    assert!(sent < bytes / 10, "from its neighbour: {sent}");
    let (sent, by_peer) = run_on("far5");
    assert!(sent > bytes && by_peer < bytes / 10, "it is in another lab: {sent} and {by_peer}");
    let (sent, _) = run_on("far5");
    assert!(sent < bytes / 10, "from its own cache: {sent}");
}
