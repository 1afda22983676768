//! Bytes that are no calls.

use crate::kit::{Node, plugin};
use firstlight_kubernetes::api::Empty;
use firstlight_kubernetes::api::device_plugin as api;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tonic::Code;

const ALL: [&str; 3] = ["any-0", "any-1", "any-2"];

/// The beginning of each connection of HTTP/2, and of its settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(flavor = "multi_thread")]
async fn half_messages_end_their_connections_and_no_other() {
    let node = Node::start();
    node.kubelet.until_healthy(&ALL).await;
    let socket = node
        .kubelet
        .plugins()
        .join(node.kubelet.registered().await.endpoint);
    let mut half = Vec::new();
    for length in 0..HELLO.len() {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(&HELLO[..length]).unwrap();
        // Some hang up, some stay.
        if length % 2 == 0 {
            half.push(stream);
        }
    }
    let frame = [HELLO, b"\0\xff\xff\x01\x05\0\0\0\x01half"].concat();
    for bytes in [&frame[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096]] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // It may have hung up before all was written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    node.kubelet.until_healthy(&ALL).await;
    node.kubelet.admit("a", "any-0").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_call_and_no_device_is_refused_in_words() {
    let node = Node::start();
    node.kubelet.until_healthy(&ALL).await;
    let unknown: Result<Empty, _> = node
        .kubelet
        .call("/v9.DevicePlugin/Allocate", Empty {})
        .await;
    assert_eq!(unknown.unwrap_err().code(), Code::Unimplemented);
    for device in ["any-9", "../../etc", ""] {
        let status = node.kubelet.admit("a", device).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        assert!(
            status
                .message()
                .contains("firstlight.dev/thp-2m has no device"),
            "{status}"
        );
    }
    // Another message than is expected: a number where a list is.
    let options = api::DevicePluginOptions {
        pre_start_required: true,
        get_preferred_allocation_available: true,
    };
    let wrong: Result<Empty, _> = node.kubelet.call(api::ALLOCATE, options).await;
    assert_eq!(wrong.unwrap_err().code(), Code::Internal);
}

#[test]
fn help_has_examples_and_a_wrong_option_has_a_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let help = plugin(folder.path()).arg("--help").output().unwrap();
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("Examples:\n  firstlight-kubernetes plugin")
    );
    let wrong = plugin(folder.path()).arg("--nonsense").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
