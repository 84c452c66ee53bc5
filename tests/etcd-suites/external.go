package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
)

// A member serves its clients by the program that TEST_ETCD_SERVER names, which takes etcd's flags: what comes on the
// member's sockets is forwarded to it byte by byte. The etcd in the process of the test runs on, without clients.
// scripts/test-etcd-suites puts this file into etcd's framework for integration tests.

var externalConfigs sync.Map // *Member to MemberConfig

func isExternal() bool { return os.Getenv("TEST_ETCD_SERVER") != "" }

// keepConfig keeps what of a member's configuration is not in Member.
func (m *Member) keepConfig(config MemberConfig) { externalConfigs.Store(m, config) }

// launchExternal starts the program where there is one, and returns the listeners that it does not serve.
func (m *Member) launchExternal() ([]net.Listener, error) {
	if !isExternal() {
		return m.ClientListeners, nil
	}
	address, peer := freeAddress(), freeAddress()
	command := exec.Command(os.Getenv("TEST_ETCD_SERVER"), m.externalFlags(address, peer)...)
	output, err := os.OpenFile(m.DataDir+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = output, output
	// It ends with the test, also where that panics.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		command.Wait()
		close(ended)
	}()
	if err := awaitAddress(address, ended); err != nil {
		text, _ := os.ReadFile(m.DataDir + ".log")
		m.Logger.Error("the program did not start", zap.ByteString("output", text))
		return nil, err
	}
	listeners := append([]net.Listener{}, m.ClientListeners...)
	if m.GRPCListener != nil {
		listeners = append(listeners, m.GRPCListener)
	}
	forwarder := &forwarder{address: address, connections: map[net.Conn]struct{}{}}
	for _, listener := range listeners {
		go forwarder.serve(listener)
	}
	m.ServerClosers = append(m.ServerClosers, func() {
		for _, listener := range listeners {
			listener.Close()
		}
		command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			command.Process.Kill()
			<-ended
		}
		forwarder.closeAll()
		output.Close()
	})
	return nil, nil
}

func (m *Member) externalFlags(address, peer string) []string {
	scheme := "http"
	flags := []string{}
	if info := m.ClientTLSInfo; info != nil && !info.Empty() {
		scheme = "https"
		flags = append(flags, "--cert-file="+info.CertFile, "--key-file="+info.KeyFile)
		if info.TrustedCAFile != "" {
			flags = append(flags, "--trusted-ca-file="+info.TrustedCAFile)
		}
		if info.ClientCertAuth {
			flags = append(flags, "--client-cert-auth")
		}
	}
	url := scheme + "://" + address
	flags = append(flags,
		"--name="+m.Name, "--data-dir="+m.DataDir+"/external", "--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer,
		"--initial-cluster="+m.Name+"=http://"+peer, "--auth-token="+m.AuthToken, "--bcrypt-cost=4",
		fmt.Sprintf("--max-txn-ops=%d", m.MaxTxnOps), fmt.Sprintf("--max-request-bytes=%d", m.MaxRequestBytes),
		fmt.Sprintf("--quota-backend-bytes=%d", m.QuotaBackendBytes))
	interval := m.WatchProgressNotifyInterval
	if interval == 0 {
		interval = v3rpc.GetProgressReportInterval()
	}
	flags = append(flags, fmt.Sprintf("--watch-progress-notify-interval=%s", interval))
	if stored, ok := externalConfigs.Load(m); ok {
		config := stored.(MemberConfig)
		if config.GRPCKeepAliveMinTime > 0 {
			flags = append(flags, fmt.Sprintf("--grpc-keepalive-min-time=%s", config.GRPCKeepAliveMinTime))
		}
		if config.GRPCKeepAliveInterval > 0 && config.GRPCKeepAliveTimeout > 0 {
			flags = append(flags, fmt.Sprintf("--grpc-keepalive-interval=%s", config.GRPCKeepAliveInterval),
				fmt.Sprintf("--grpc-keepalive-timeout=%s", config.GRPCKeepAliveTimeout))
		}
	}
	return flags
}

func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return strings.Clone(listener.Addr().String())
}

func awaitAddress(address string, ended <-chan struct{}) error {
	for range 600 {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the program ended before it served %s", address)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("nothing listens on %s", address)
}

type forwarder struct {
	address     string
	lock        sync.Mutex
	connections map[net.Conn]struct{}
	closed      bool
}

func (f *forwarder) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.address)
		if err != nil {
			client.Close()
			continue
		}
		if !f.add(client, server) {
			return
		}
		go f.copy(client, server)
		go f.copy(server, client)
	}
}

func (f *forwarder) add(connections ...net.Conn) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, connection := range connections {
		if f.closed {
			connection.Close()
		} else {
			f.connections[connection] = struct{}{}
		}
	}
	return !f.closed
}

// copy ends both directions when one ends, as a server does that closes a connection.
func (f *forwarder) copy(to, from net.Conn) {
	io.Copy(to, from)
	to.Close()
	from.Close()
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.connections, to)
	delete(f.connections, from)
}

func (f *forwarder) closeAll() {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.closed = true
	for connection := range f.connections {
		connection.Close()
	}
}
