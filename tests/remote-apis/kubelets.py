#!/usr/bin/env python3
"""What metrics-server reads of kubelets: /metrics/resource of several nodes, each at an address of its own.

    kubelets.py --server URL --ca FILE --token FILE --certificate FILE --key FILE --network 127.0.1 --nodes 3
                --port PORT --load FILE

Node N is node-N at NETWORK.N. The pods of a node are those that the API server has running on it. A line of the file
of loads, NAMESPACE/PREFIX MILLICORES, is what all running pods of that namespace whose names begin so use together,
each its share; other pods use one millicore. The file is read at every scrape. Clients need a bearer token, as those of
a kubelet do.
"""
import argparse
import json
import ssl
import threading
import time
import urllib.request
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MEMORY = 64 << 20
NODE_MILLICORES = 50


class Pods:
    """The running pods with the processor time that they have used."""

    def __init__(self, options):
        self.options = options
        self.context = ssl.create_default_context(cafile=options.ca)
        self.lock = threading.Lock()
        self.used = {}
        self.at = time.time()
        self.started = self.at

    def list(self):
        url = self.options.server + "/api/v1/pods?fieldSelector=status.phase%3DRunning"
        with open(self.options.token, encoding="ascii") as file:
            headers = {"Authorization": "Bearer " + file.read().strip()}
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, context=self.context, timeout=10) as answer:
            return json.load(answer)["items"]

    def loads(self):
        with open(self.options.load, encoding="utf-8") as file:
            lines = [line.split() for line in file if line.strip()]
        return [(*name.split("/", 1), float(millicores)) for name, millicores in lines]

    def metrics(self, node):
        """The text for a node."""
        pods, loads = self.list(), self.loads()
        with self.lock:
            now = time.time()
            elapsed, self.at = now - self.at, now
            used = {}
            for pod in pods:
                metadata = pod["metadata"]
                used[metadata["uid"]] = self.used.get(metadata["uid"], 0.0) + elapsed * rate(metadata, pods, loads)
            self.used = used
            on_node = [pod for pod in pods if pod["spec"].get("nodeName") == node]
            seconds = (now - self.started) * NODE_MILLICORES / 1000 + 1
            seconds += sum(used[pod["metadata"]["uid"]] for pod in on_node)
            return "".join(lines(node_lines(seconds, len(on_node)) + pod_lines(on_node, used), int(now * 1000)))


def rate(metadata, pods, loads):
    """The processors that a pod uses."""
    def belongs(other, namespace, prefix):
        return other["namespace"] == namespace and other["name"].startswith(prefix)
    for namespace, prefix, millicores in loads:
        if belongs(metadata, namespace, prefix):
            share = sum(1 for pod in pods if belongs(pod["metadata"], namespace, prefix))
            return millicores / 1000 / share
    return 0.001


def node_lines(seconds, pods):
    return [("node_cpu_usage_seconds_total", "", seconds), ("node_memory_working_set_bytes", "", MEMORY * (4 + pods))]


def pod_lines(pods, used):
    found = []
    for pod in pods:
        metadata = pod["metadata"]
        containers = pod["spec"]["containers"]
        started = datetime.fromisoformat(pod["status"]["startTime"].replace("Z", "+00:00")).timestamp()
        for container in containers:
            labels = f'{{container="{container["name"]}",namespace="{metadata["namespace"]}",pod="{metadata["name"]}"}}'
            found.append(("container_cpu_usage_seconds_total", labels, used[metadata["uid"]] / len(containers)))
            found.append(("container_memory_working_set_bytes", labels, MEMORY))
            found.append(("container_start_time_seconds", labels, started))
    return found


def lines(metrics, milliseconds):
    for name, labels, value in metrics:
        yield f"{name}{labels} {value:.6f} {milliseconds}\n"


def handler(pods):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            node = "node-" + self.server.server_address[0].rsplit(".", 1)[1]
            if not self.headers.get("Authorization", "").startswith("Bearer "):
                self.answer(401, "Unauthorized")
            elif self.path != "/metrics/resource":
                self.answer(404, "404 page not found\n")
            else:
                try:
                    self.answer(200, pods.metrics(node))
                except (OSError, ValueError) as error:
                    self.answer(500, f"{error}\n")

        def answer(self, code, text):
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main():
    parser = argparse.ArgumentParser()
    for name in ("server", "ca", "token", "certificate", "key", "network", "load"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.certificate, options.key)
    pods = Pods(options)
    threads = []
    for number in range(1, options.nodes + 1):
        server = ThreadingHTTPServer((f"{options.network}.{number}", options.port), handler(pods))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threads.append(threading.Thread(target=server.serve_forever, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
