use super::*;

const DOMAIN: &str = r#"<?xml version="1.0"?>
<!-- a comment -->
<domain type='kvm' id="3" xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>a&amp;b</name>
  <memory unit='KiB'>4194304</memory>
BACKING
  <devices>
    <disk><source file='/usr/bin/qemu-system-x86_64'/></disk>
	<emulator>/usr/bin/qemu-system-x86_64</emulator>
  </devices>
  <qemu:commandline><qemu:arg value='-d'/><emulator>/usr/bin/no</emulator></qemu:commandline>
</domain>
"#;

fn with(backing: &str) -> String {
    DOMAIN.replace("BACKING", backing)
}

fn refused(xml: &str) -> String {
    let domain = Domain::read(xml);
    let error = domain.and_then(|domain| domain.enabled().map(drop));
    error.expect_err(xml).to_string()
}

#[test]
fn only_the_emulator_changes_and_comes_back() {
    let xml = with("<memoryBacking><hugepages/></memoryBacking>");
    let domain = Domain::read(&xml).expect("a domain");
    assert_eq!((domain.name(), domain.is_enabled()), ("a&b", false));
    assert_eq!(domain.notes(), [""; 0]);
    assert_eq!(domain.disabled(), None);
    let changed = domain.enabled().expect("nothing against it").expect("new");
    let expected = xml.replace("<emulator>/usr/bin/q", "<emulator>/usr/bin/firstlight-q");
    assert_eq!(changed, expected);

    let changed = Domain::read(&changed).expect("a domain");
    assert!(changed.is_enabled());
    assert_eq!(changed.enabled(), Ok(None));
    assert_eq!(changed.disabled(), Some(xml.clone()));
}

#[test]
fn memory_that_the_pool_cannot_be_is_a_reason() {
    for (backing, reason) in [
        (
            "<memoryBacking><source type='file'/></memoryBacking>",
            "<source type='file'/> keeps",
        ),
        (
            "<numatune><memory mode='interleave' nodeset='0'/></numatune>",
            "<memory mode='interleave'/> in <numatune> spreads",
        ),
        (
            "<numatune><memnode cellid='0' mode='interleave' nodeset='0'/></numatune>",
            "<memnode mode='interleave'/> in <numatune> spreads",
        ),
        (
            "<numatune><memory mode='strict' nodeset='0-1'/></numatune>",
            "<memory nodeset='0-1'/> in <numatune> are several",
        ),
        (
            "<numatune><memnode cellid='1' mode='strict' nodeset='0,2'/></numatune>",
            "<memnode nodeset='0,2'/> in <numatune> are several",
        ),
    ] {
        let error = refused(&with(backing));
        assert!(error.starts_with(reason), "{backing}: {error}");
    }
    let fine = "<numatune><memory mode='strict' nodeset='0-1'/>\
                <memnode cellid='0' mode='strict' nodeset='0'/></numatune>";
    let xml = with(fine);
    Domain::read(&xml)
        .expect("a domain")
        .enabled()
        .expect("a node for each cell");
}

#[test]
fn what_stays_the_kernels_or_changes_is_noted() {
    for (backing, expected) in [
        (
            "<maxMemory slots='4'>8388608</maxMemory>",
            "memory devices (DIMMs)",
        ),
        (
            "<cpu><numa><cell id='0' memAccess='private'/></numa></cpu>",
            "private access becomes",
        ),
        (
            "<memoryBacking><access mode='private'/></memoryBacking>",
            "private access becomes",
        ),
    ] {
        let xml = with(backing);
        let domain = Domain::read(&xml).expect("a domain");
        let [note] = domain.notes() else {
            panic!("{backing}: {:?}", domain.notes());
        };
        assert!(note.starts_with(expected), "{note}");
    }
}

#[test]
fn xml_that_is_not_understood_is_a_reason() {
    let plain = with("");
    let emulator = "<emulator>/usr/bin/qemu-system-x86_64</emulator>";
    let replaced = |text: &str| plain.replace(emulator, text);
    for (xml, reason) in [
        (String::new(), "no XML: "),
        ("<domain".into(), "no XML: "),
        (
            "<!DOCTYPE domain [<!ENTITY e 'x'>]><domain/>".into(),
            "no XML: ",
        ),
        ("<network/>".into(), "<network> instead of <domain>"),
        ("<domain/>".into(), "a domain of type \"\""),
        (
            plain.replace("'kvm'", "'xen'"),
            "a domain of type xen; only kvm and qemu",
        ),
        (
            "<domain type='kvm'/>".into(),
            "0 <name> in <domain>, expected 1",
        ),
        (
            plain.replace("</name>", "</name><name/>"),
            "2 <name> in <domain>, expected 1",
        ),
        (replaced(""), "0 <emulator> in <devices>, expected 1"),
        (
            replaced(&emulator.repeat(2)),
            "2 <emulator> in <devices>, expected 1",
        ),
        (
            replaced("<emulator/>"),
            "<emulator> holds more than plain text",
        ),
        (
            replaced("<emulator>/usr/bin/qemu&#45;system-x86_64</emulator>"),
            "<emulator> holds more",
        ),
        (
            replaced("<emulator><!-- a -->/usr/bin/kvm</emulator>"),
            "<emulator> holds more",
        ),
        (
            replaced("<emulator><![CDATA[/usr/bin/kvm]]></emulator>"),
            "<emulator> holds more",
        ),
        (
            replaced("<emulator>/usr/bin/kvm</emulator>"),
            "its emulator is /usr/bin/kvm, expected",
        ),
        (
            replaced("<emulator xmlns='urn:x'>/usr/bin/qemu-system-x86_64</emulator>"),
            "0 <emulator>",
        ),
    ] {
        let error = refused(&xml);
        assert!(error.starts_with(reason), "{xml}: {error}");
    }
}
