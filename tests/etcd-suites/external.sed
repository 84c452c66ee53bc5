/^func (m \*Member) Launch() error {/,/^}/ {
  s/^\tfor _, ln := range m.ClientListeners {/\tlisteners, err := m.launchExternal()\n\tif err != nil {\n\t\treturn err\n\t}\n\tfor _, ln := range listeners {/
  s/^\t\tgo m.GRPCServer.Serve(m.GRPCListener)/\t\tif !isExternal() {\n\t&\n\t\t}/
}
s/^\tm.StrictReconfigCheck = /\tm.keepConfig(mcfg)\n&/
/^func NewCluster(t testutil.TB, cfg \*ClusterConfig) \*Cluster {/a\
	if isExternal() {\
		one := *cfg\
		one.Size, cfg = 1, &one\
	}
/^func (c \*Cluster) WaitMembersMatch(/a\
	if isExternal() {\
		return\
	}
/^func (c \*Cluster) waitMembersMatch(/a\
	if isExternal() {\
		return\
	}
/^func (c \*Cluster) Client(i int)/,/^}/s/c.Members\[i\]/c.Members[i%len(c.Members)]/
