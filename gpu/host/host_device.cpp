// placeholder until gpu/host lands
