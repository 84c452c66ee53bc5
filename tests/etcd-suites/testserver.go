package testserver

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// A server for the tests of k8s.io/apiserver's storage: the program that TEST_ETCD_SERVER names, which takes etcd's
// flags, where apiserver has an etcd in the process of the test. As kine has itself tested (its pkg/testserver).
// scripts/test-etcd-suites puts this file into the module in the place of test_server.go.

var ports sync.Mutex

func freeURL(t testing.TB, scheme string) url.URL {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	return url.URL{Scheme: scheme, Host: net.JoinHostPort("localhost", strconv.Itoa(port))}
}

// NewTestConfig returns what tests change before RunEtcd.
func NewTestConfig(t testing.TB) *embed.Config {
	cfg := embed.NewConfig()
	cfg.ListenClientUrls = []url.URL{freeURL(t, "http")}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{freeURL(t, "http")}
	cfg.Dir = t.TempDir()
	return cfg
}

// RunEtcd starts the program, and returns a client of it. It ends with the test.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	client, peer := cfg.ListenClientUrls[0].String(), cfg.ListenPeerUrls[0].String()
	arguments := []string{
		"--data-dir=" + filepath.Join(cfg.Dir, "data"), "--listen-client-urls=" + client,
		"--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--watch-progress-notify-interval=" + cfg.WatchProgressNotifyInterval.String(),
		"--max-txn-ops=" + strconv.FormatUint(uint64(cfg.MaxTxnOps), 10),
		"--max-request-bytes=" + strconv.FormatUint(uint64(cfg.MaxRequestBytes), 10),
	}
	if cfg.ClientTLSInfo.CertFile != "" {
		arguments = append(arguments, "--cert-file="+cfg.ClientTLSInfo.CertFile, "--key-file="+cfg.ClientTLSInfo.KeyFile)
	}
	if cfg.ClientTLSInfo.TrustedCAFile != "" {
		arguments = append(arguments, "--client-cert-auth=true", "--trusted-ca-file="+cfg.ClientTLSInfo.TrustedCAFile)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Getenv("TEST_ETCD_SERVER"), arguments...)
	command.Stdout, command.Stderr = log, log
	// It ends with the test, also where that panics.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { command.Process.Kill() })
		command.Wait()
		kill.Stop()
		log.Close()
	})

	tlsConfig, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.New(clientv3.Config{
		TLS:         tlsConfig,
		Endpoints:   []string{client},
		DialTimeout: 30 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithBlock()},
		Logger:      zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)).Named("etcd-client"),
	})
	if err != nil {
		output, _ := os.ReadFile(log.Name())
		t.Fatalf("%v: %s", err, output)
	}
	c.KV = storagetesting.NewKVRecorder(c.KV)
	c.Kubernetes = storagetesting.NewKubernetesRecorder(c.Kubernetes)
	return c
}
